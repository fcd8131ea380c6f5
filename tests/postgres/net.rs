//! A network whose packets the test drops. Each node is in a network namespace, and the switch is in one, too; the
//! test and its server are where they always are. All are removed with it, even if a test fails.

use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use super::cluster::Cluster;
use super::needs;
use super::node_site::Place;

/// What a cut drops between b and the server.
pub(crate) const ALL: [&str; 2] = ["iifname b tcp dport", "oifname b tcp sport"];
pub(crate) const ANSWERS: [&str; 1] = ["oifname b tcp sport"];

/// A network of the test with its server and of the nodes a and b.
pub(crate) struct Net {
    /// The name of the switch's namespace. It begins the other names.
    name: String,
    /// A subnet of 198.18.0.0/15, which is kept for tests of networks.
    subnet: String,
}

impl Net {
    /// `None` where that is not possible, which is noted as a need of this test.
    pub(crate) fn new() -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let (own, nth) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let mut subnets = (own * 8 + nth..).map(|number| format!("198.18.{}", number % 256));
        let is_free = |subnet: &String| UdpSocket::bind(format!("{subnet}.1:0")).is_err();
        let net = Net { name: format!("hl{own}-{nth}"), subnet: subnets.find(is_free).unwrap() };
        match net.make() {
            Ok(()) => Some(net),
            Err(why) => {
                eprintln!("{why}");
                needs::missing("network namespaces", "run as root, apt install iproute2 nftables");
                None
            }
        }
    }

    fn make(&self) -> Result<(), String> {
        let Net { name, subnet } = self;
        let mut script = format!(
            "ip netns add {name}
            ip -n {name} link add name switch type bridge
            ip -n {name} link set switch up
            ip link add name {name} type veth peer name test netns {name}
            ip -n {name} link set test master switch up
            ip addr add {subnet}.1/24 dev {name}
            ip link set {name} up
            ip netns exec {name} nft add table bridge cut
            ip netns exec {name} nft 'add chain bridge cut c {{ type filter hook forward priority 0; }}'\n"
        );
        for (node, host) in [("a", 2), ("b", 3)] {
            script.push_str(&format!(
                "ip netns add {name}{node}
                ip -n {name} link add name {node} type veth peer name net netns {name}{node}
                ip -n {name} link set dev {node} master switch up
                ip -n {name}{node} addr add {subnet}.{host}/24 dev net
                ip -n {name}{node} link set net up
                ip -n {name}{node} link set lo up\n"
            ));
        }
        shell(&script)
    }

    /// A server with an address in this network.
    pub(crate) async fn cluster(&self) -> Cluster {
        let addresses = format!("listen_addresses=127.0.0.1,{}.1", self.subnet);
        let cluster = Cluster::new(&[&addresses]).await;
        cluster
            .server
            .write("data/pg_hba.conf", "local all all trust\nhost all all all scram-sha-256\n");
        cluster.server.reload().await;
        cluster
    }

    /// Where a node is, `a` or `b`.
    pub(crate) fn place(&self, node: &str) -> Place {
        let Net { name, subnet } = self;
        let host = if node == "a" { 2 } else { 3 };
        Place {
            own: format!("{subnet}.{host}"),
            server: format!("{subnet}.1"),
            namespace: Some(format!("{name}{node}")),
            limits: "",
        }
    }

    /// From now on these packets between b and the server are dropped.
    pub(crate) fn cut(&self, cluster: &Cluster, what: &[&str]) {
        let rule =
            |what: &&str| format!("add rule bridge cut c {what} {} drop;", cluster.server.port);
        self.nft(&what.iter().map(rule).collect::<String>());
    }

    /// The server's machine forgets its connections with b, as after a loss of power.
    pub(crate) fn forget(&self, cluster: &Cluster) {
        let (subnet, port) = (&self.subnet, cluster.server.port);
        // Needs CONFIG_INET_DIAG_DESTROY of the kernel. It lists what it closes.
        shell(&format!("ss -HKtn 'sport = :{port} and dst {subnet}.3' | grep .")).unwrap();
    }

    /// From now on all packets pass.
    pub(crate) fn heal(&self) {
        self.nft("flush chain bridge cut c");
    }

    fn nft(&self, rules: &str) {
        shell(&format!("ip netns exec {} nft '{rules}'", self.name)).unwrap();
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        // Some of them may not exist.
        for which in ["a", "b", ""] {
            let _ = shell(&format!("ip netns del {}{which}", self.name));
        }
        let _ = shell(&format!("ip link del {}", self.name));
    }
}

fn shell(script: &str) -> Result<(), String> {
    let output = Command::new("sh").args(["-ec", script]).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if output.status.success() { Ok(()) } else { Err(said) }
}
