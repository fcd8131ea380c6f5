//! Receiver and runner as services: they take over sockets, and notify their service manager. The test is
//! the manager, with real sockets, real processes and the real protocol.

use std::fs;
use std::net::TcpListener;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{PATIENCE, Receiver, Site, github_at, runner};

/// `command` as a service manager starts it: with these sockets as descriptors from 3 on.
fn activated(command: &Command, sockets: &[&dyn AsFd]) -> Command {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", "export LISTEN_PID=$$; exec \"$@\"", "sh"]);
    shell.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell.env("LISTEN_FDS", sockets.len().to_string()).stdin(Stdio::null());
    // Duplicates the descriptors above the numbers that the child must get.
    let copies: Vec<OwnedFd> =
        sockets.iter().map(|one| fcntl_dupfd_cloexec(one.as_fd(), 100).unwrap()).collect();
    let inherit = move || {
        for (number, copy) in (3..).zip(&copies) {
            // SAFETY: this runs in the child before exec; the executed program owns the descriptor then.
            if unsafe { libc::dup2(copy.as_raw_fd(), number) } < 0 {
                return Err(std::io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: between fork and exec the closure calls only dup2, which is async-signal-safe.
    unsafe { shell.pre_exec(inherit) };
    shell
}

/// The manager's notification socket.
struct Manager(UnixDatagram, std::path::PathBuf);

impl Manager {
    fn new(site: &Site) -> Self {
        let path = site.path("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Manager(socket, path)
    }

    /// Waits for a message, and returns it with all messages before it.
    fn hears(&self, wanted: &str) -> Vec<String> {
        let mut heard = Vec::new();
        while heard.last().is_none_or(|last| last != wanted) {
            let mut message = [0; 4096];
            let length =
                self.0.recv(&mut message).unwrap_or_else(|_| panic!("no {wanted}: {heard:?}"));
            heard.push(String::from_utf8_lossy(&message[..length]).into_owned());
        }
        heard
    }
}

/// The number of descriptors of a process that refer to the socket with this inode.
fn copies(pid: u32, inode: u64) -> usize {
    let name = format!("socket:[{inode}]");
    let all = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    all.filter(|one| fs::read_link(one.path()).is_ok_and(|to| to == Path::new(&name))).count()
}

fn inode(socket: &impl AsFd) -> u64 {
    rustix::fs::fstat(socket).unwrap().st_ino
}

/// The variables of a service manager in a process's environment.
fn of_manager(pid: u32) -> Vec<String> {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap();
    let all = environment.split(|byte| *byte == 0).map(String::from_utf8_lossy);
    let of_manager = |one: &String| {
        ["LISTEN_", "NOTIFY_", "WATCHDOG_"].iter().any(|start| one.starts_with(start))
    };
    all.map(|one| one.into_owned()).filter(of_manager).collect()
}

#[test]
fn a_receiver_serves_the_sockets_of_its_service_manager() {
    let site = Site::new(
        "[handlers.look]\nsource = \"github\"\nevents = [\"*\"]\n\
         command = [\"/bin/sh\", \"-c\", \"ls -l /proc/self/fd; env\"]\n",
    );
    let manager = Manager::new(&site);
    let sockets = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let addresses = sockets.each_ref().map(|one| one.local_addr().unwrap());
    let mut command = site.command(&["serve"]);
    command.env("NOTIFY_SOCKET", &manager.1);
    let receiver = Receiver::of(activated(&command, &[&sockets[0], &sockets[1]])).unwrap();
    assert_eq!(manager.hears("READY=1"), ["STATUS=accepting", "READY=1"]);

    for (n, address) in addresses.into_iter().enumerate() {
        assert_eq!(github_at(address, &format!("event-{n}"), "push", &format!("{n}")).0, 200);
    }
    site.all_jobs(2, "succeeded");
    // The runner and its commands have neither the sockets nor the variables.
    let launched = runner::runner(&site.store()).unwrap().as_raw_pid().cast_unsigned();
    assert_eq!(of_manager(launched), Vec::<String>::new());
    for socket in &sockets {
        assert_eq!(copies(receiver.pid(), inode(socket)), 1);
        assert_eq!(copies(launched, inode(socket)), 0);
    }
    assert_eq!(receiver.stop(), Some(0));
    manager.hears("STOPPING=1");
    // The manager still has the sockets: a client that connects now waits for the next receiver.
    std::net::TcpStream::connect(addresses[0]).unwrap();
}

#[test]
fn an_ignored_listen_address_is_logged() {
    let site = Site::new("");
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let config = fs::read_to_string(site.config()).unwrap();
    site.write_config(config.replace("127.0.0.1:0", "127.0.0.1:9"));
    let mut command = activated(&site.command(&["serve"]), &[&socket]);
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let said = until(&mut child, "serving");
    end(child);
    let served = socket.local_addr().unwrap();
    let warning = format!(
        "server.listen = \\\"127.0.0.1:9\\\" does not count: systemd's socket unit says {served}"
    );
    assert!(said.contains(&warning), "{said}");
}

#[test]
fn an_unusable_socket_is_refused() {
    let site = Site::new("");
    let path = site.path("s");
    let stream = UnixListener::bind(&path).unwrap();
    let datagram = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let file = fs::File::open(site.config()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let connection = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let cases: [(&[&dyn AsFd], &str); 5] = [
        (&[&stream], "descriptor 3 is a Unix socket, where a TCP socket is needed"),
        (&[&listener, &datagram], "descriptor 4 is a datagram or packet socket"),
        (&[&file], "descriptor 3 is not a socket"),
        (&[&connection], "descriptor 3 is a connection"),
        (&[], "descriptor 3 of the 1 that LISTEN_FDS counts cannot be used"),
    ];
    for (sockets, wanted) in cases {
        let mut command = activated(&site.command(&["serve"]), sockets);
        if sockets.is_empty() {
            command.env("LISTEN_FDS", "1");
        }
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(wanted), "{wanted}: {said}");
        assert!(!site.store().exists(), "no store may be created");
    }
    // Sockets for another process are ignored.
    let mut command = site.command(&["serve"]);
    command.env("LISTEN_FDS", "1").env("LISTEN_PID", "1");
    drop(Receiver::of(command).unwrap());
}

#[test]
fn an_unsigned_source_is_not_served_to_other_machines() {
    let site = Site::with(
        "[sources.open]\nprovider = \"none\"\nallow_unsigned = true\npath = \"/open\"\n",
        "",
    );
    let socket = TcpListener::bind("0.0.0.0:0").unwrap();
    let output = activated(&site.command(&["serve"]), &[&socket]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("source 'open' takes events from anybody, and 0.0.0.0:"), "{said}");
    assert!(!output.status.success());
}

#[test]
fn a_runner_keeps_its_managers_socket_through_its_re_execution() {
    let site = Site::new(
        "[handlers.look]\nsource = \"github\"\nevents = [\"*\"]\n\
         command = [\"/bin/sh\", \"-c\", \"ls -l /proc/self/fd >fds; env >env; read line <go\"]\n\
         cwd = \"SITE\"\n",
    );
    let config = fs::read_to_string(site.config()).unwrap();
    let folder = site.path("runner");
    site.write_config(config.replace("SITE", site.path("").to_str().unwrap()));
    rustix::fs::mkfifoat(rustix::fs::CWD, site.path("go"), 0o600.into()).unwrap();
    // The path at which the runner would bind, and would unlink, its own socket.
    fs::DirBuilder::new().mode(0o700).create(&folder).unwrap();
    let path = folder.join("default.socket");
    let socket = UnixListener::bind(&path).unwrap();
    let manager = Manager::new(&site);
    let mut command = site.command(&["runner", "--name", "default", "--folder"]);
    command.arg(&folder).env("NOTIFY_SOCKET", &manager.1);
    let mut child = activated(&command, &[&socket]).stderr(Stdio::piped()).spawn().unwrap();
    let log = std::mem::take(&mut child.stderr);
    std::thread::spawn(move || std::io::copy(&mut log.unwrap(), &mut std::io::sink()));
    let (pid, own) = (child.id(), Pid::from_child(&child));
    assert_eq!(manager.hears("READY=1"), ["STATUS=0 commands run", "READY=1"]);

    let mut command = site.command(&["serve", "--runners"]);
    command.arg(&folder);
    let receiver = Receiver::of(command).unwrap();
    receiver.github("one", "push", "{}");
    manager.hears("STATUS=1 command runs");
    kill_process(own, Signal::USR2).unwrap();
    // The same process is ready again and has the socket once.
    manager.hears("READY=1");
    assert_eq!(copies(pid, inode(&socket)), 1);
    assert_eq!(of_manager(pid), [format!("NOTIFY_SOCKET={}", manager.1.display())]);
    fs::write(site.path("go"), "on\n").unwrap();
    site.all_jobs(1, "succeeded");
    let fds = fs::read_to_string(site.path("fds")).unwrap();
    assert!(!fds.contains(&format!("socket:[{}]", inode(&socket))), "{fds}");
    let environment = fs::read_to_string(site.path("env")).unwrap();
    assert!(!environment.contains("NOTIFY_") && !environment.contains("LISTEN_"), "{environment}");

    // A second re-execution, with a command that the new program started.
    kill_process(own, Signal::USR2).unwrap();
    manager.hears("READY=1");
    assert_eq!(copies(pid, inode(&socket)), 1);
    receiver.github("two", "push", "{\"n\":2}");
    manager.hears("STATUS=1 command runs");
    kill_process(own, Signal::TERM).unwrap();
    manager.hears("STOPPING=1");
    manager.hears("EXTEND_TIMEOUT_USEC=60000000");
    fs::write(site.path("go"), "on\n").unwrap();
    assert!(child.wait().unwrap().success());
    site.all_jobs(2, "succeeded");
    assert!(fs::metadata(&path).is_ok_and(|file| file.mode() & 0o170_000 == 0o140_000), "unlinked");
    assert_eq!(receiver.stop(), Some(0));
}

/// The log up to the first line with this text.
fn until(child: &mut Child, text: &str) -> String {
    use std::io::{BufRead, BufReader};
    let mut said = String::new();
    for line in BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok) {
        said.push_str(&line);
        said.push('\n');
        if line.contains(text) {
            return said;
        }
    }
    panic!("no {text}: {said}");
}

fn end(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}
