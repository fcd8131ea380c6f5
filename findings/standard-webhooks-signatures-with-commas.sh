#!/usr/bin/env bash
# Supabase's auth hooks join the signatures of several secrets with ", ", where Standard Webhooks has a space. Of its two
# libraries standardwebhooks 1.1.1 (npm) takes such a header, and 1.1.0 (PyPI) ends in a ValueError, also where the
# secret is the first.
. "$(dirname "$0")/lib/packages.bash"
npm_packages standardwebhooks@1.1.1
pip_packages standardwebhooks==1.1.0
cat >try.mjs <<'JS'
import { Webhook } from "standardwebhooks";
const [own, other] = ["bWFkZSBmb3IgdGVzdHMsIDI0IGJ5dGVz", "YW5vdGhlciBzZWNyZXQsIDI0IGJ5dGU="].map((s) => new Webhook(s));
const [at, body] = [new Date(), "{}"];
const both = [own, other].map((webhook) => webhook.sign("msg_1", at, body)).join(", ");
const headers = { "webhook-id": "msg_1", "webhook-timestamp": String(Math.floor(at / 1000)), "webhook-signature": both };
own.verify(body, headers);
console.error("npm: taken");
console.log(JSON.stringify(headers));
JS
cat >try.py <<'PY'
import json, sys
from standardwebhooks import Webhook
try:
    Webhook("bWFkZSBmb3IgdGVzdHMsIDI0IGJ5dGVz").verify("{}", json.load(sys.stdin))
    print("PyPI: taken")
except Exception as error:
    print("PyPI:", type(error).__name__)
PY
{ node try.mjs 2>&1 >headers.json; venv/bin/python try.py <headers.json; } | expect 'npm: taken
PyPI: ValueError'
