# The sources and handlers of the install test, its deliveries and their account. Source it after container.sh and
# checks.sh; `inside` runs in the machine.

# documented LANGUAGE: the first configuration in docs/proxy.md for LANGUAGE, which is the receiver's.
documented() { sed -n "/^\`\`\`$1\$/,/^\`\`\`\$/{/^\`\`\`\$/q;/^\`\`\`/d;p}" docs/proxy.md; }

# configure: a source from `init` with proxies in front, a source whose secret is a file, and handlers that record
# their runs.
configure() {
    inside hooklatch init --source github >"$work/init"
    documented caddy | sed 's/^hooks.example.org/:8081/' >"$machine/etc/caddy/Caddyfile"
    rm -f "$machine/etc/nginx/sites-enabled/default"
    documented nginx | sed 's/listen 443 ssl/listen 127.0.0.1:8082/' >"$machine/etc/nginx/sites-enabled/hooks"
    printf '\n[limits]\nlist_count = 100000\n' >>"$machine/etc/hooklatch/hooklatch.toml"
    cat >"$machine/etc/hooklatch/conf.d/test.toml" <<'END'
[sources.filed]
provider = "github"
secrets = ["file:/etc/hooklatch/filed.secret"]

[handlers.ledger]
source = ["github", "filed"]
events = ["push"]
command = ["/usr/local/bin/ledger"]
concurrency = 8

[handlers.slow]
source = "github"
events = ["deployment"]
command = ["/usr/local/bin/slow"]
END
    printf '#!/bin/sh\necho "$HOOKLATCH_EVENT_ID" >>ledger\n' >"$machine/usr/local/bin/ledger"
    # 65 is final, and no other process of this test exits with it.
    cat >"$machine/usr/local/bin/slow" <<'END'
#!/bin/sh
case $HOOKLATCH_EVENT_ID in slow-*) time=20 ;; *) time=4 ;; esac
echo "begun $HOOKLATCH_EVENT_ID" >>slow
sleep $time
echo "ended $HOOKLATCH_EVENT_ID" >>slow
exit 65
END
    chmod 755 "$machine"/usr/local/bin/{ledger,slow}
    head -c 24 /dev/urandom | base64 >"$machine/etc/hooklatch/filed.secret"
    inside chown hooklatch: /etc/hooklatch/filed.secret
    inside chmod 600 /etc/hooklatch/filed.secret
    inside systemctl restart nginx.service caddy.service
}

# start_load MODE ADDRESS OPTIONS...: a load in the background, until end_loads.
LOADS=()
start_load() {
    local mode=$1 address=$2; shift 2
    inside sh -c "/root/load $address/hooks/github --secret /etc/hooklatch/secrets/github --prefix $mode \
        --until /root/stop --acknowledged /root/$mode.ids $* >/root/$mode.json" &
    LOADS+=($!)
}

end_loads() {
    inside touch /root/stop
    wait "${LOADS[@]}"
    inside rm /root/stop
}

# The machine's own jq reads JSON.
jq() { inside jq "$@"; }

requests() { jq .requests "/root/$1.json"; }
failed() { jq -c 'if .failed == 0 then 0 else [.failed, .reasons] end' "/root/$1.json"; }
total() { jq -s "map(.$1) | add" /root/{fresh,kept,nginx,caddy}.json; }

# deliver PREFIX [--path PATH] [--secret FILE] OPTIONS...: sends one delivery, or --count of them. Fails if one does not
# get 2xx.
deliver() {
    local prefix=$1 path=/hooks/github secret=/etc/hooklatch/secrets/github count=1 options=(); shift
    while [ $# -gt 0 ]; do
        case $1 in
            --path) path=$2 ;;
            --secret) secret=$2 ;;
            --count) count=$2 ;;
            *) options+=("$1" "$2") ;;
        esac
        shift 2
    done
    inside /root/load "127.0.0.1:8080$path" --secret "$secret" --prefix "$prefix" --until /root/stop \
        --count "$count" --clients 1 --pause-millis 1 --acknowledged "/root/$prefix.ids" "${options[@]}" >"$machine/root/$prefix.json"
    [ "$(jq .failed "/root/$prefix.json")" = 0 ] || { cat "$machine/root/$prefix.json"; return 1; }
}

# rotate FILE: replaces the secret, and keeps the old one in /root/old.
rotate() {
    inside cp "$1" /root/old
    # Written in place, so owner and mode stay.
    head -c 24 /dev/urandom | base64 >"$machine$1"
}

# ledger PREFIX: how often the handler ran for events whose ids begin with PREFIX.
ledger() { grep -c "^$1-" "$machine/var/lib/hooklatch-runner/ledger" || true; }

# ran_once PREFIX COUNT
ran_once() {
    equal "$(ledger "$1")" "$2" && equal "$(grep "^$1-" "$machine/var/lib/hooklatch-runner/ledger" | sort | uniq -d)" ""
}

# attempts EVENT: the number of attempts of the event's job, and their exit codes.
attempts() {
    inside hooklatch show "$1" --json | jq -r '[.. | objects | select(has("exit_code")) | .exit_code] | "\(length) \(map(tostring) | join(" "))"'
}

# Whether the slow handler has begun an event's command, and whether it ran it once and to its end.
begun() { grep -q "^begun $1\$" "$machine/var/lib/hooklatch-runner/slow"; }
begun_and_ended() { equal "$(grep " $1\$" "$machine/var/lib/hooklatch-runner/slow")" "begun $1"$'\n'"ended $1"; }

# account: the acknowledged, stored and run events of the loads must be equal.
RUNS=0 DOUBLED=0
account() {
    local ids='^(fresh|kept|nginx|caddy)-'
    cat "$machine"/root/{fresh,kept,nginx,caddy}.ids | sort >"$work/acknowledged"
    all_ran() { equal "$(grep -cE "$ids" "$machine/var/lib/hooklatch-runner/ledger")" "$(wc -l <"$work/acknowledged")"; }
    within 90 all_ran || true
    grep -E "$ids" "$machine/var/lib/hooklatch-runner/ledger" | sort >"$work/ran"
    inside hooklatch events --json --limit 100000 | jq -r '.. | objects | .event_id? // empty' | grep -E "$ids" | sort >"$work/stored"
    RUNS=$(wc -l <"$work/ran")
    DOUBLED=$(uniq -d "$work/ran" | wc -l)
    check "the stored events are the acknowledged ones: $(wc -l <"$work/stored") events" cmp "$work/acknowledged" "$work/stored"
    check "each ran exactly once" cmp "$work/acknowledged" "$work/ran"
}
