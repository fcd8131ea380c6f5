// Label Studio with SQLite, in which tasks are annotated.

import { join } from "node:path";

import { call } from "./install.mjs";
import { freePort } from "./process.mjs";

const TOKEN = "0123456789abcdef0123456789abcdef01234567";

export const sender = {
  version: "Label Studio 1.23.2 (PyPI)",
  provider: "label-studio",
  type: "ANNOTATION_CREATED",
  id: "made",
  repeated: "accepted",
  equal: "accepted",
  resends: {},

  install: (place) => place.python(),

  async start({ place, program, url, secret, folder }) {
    const port = await freePort();
    const user = ["--username", "admin@example.org", "--password", "made-for-tests", "--user-token", TOKEN];
    const server = place.start(
      join(program, "label-studio"),
      [
        ["start", "--no-browser", "--internal-host", "127.0.0.1", "--port", String(port)],
        ["--data-dir", folder, "--enable-legacy-api-token", ...user],
      ].flat(),
      {
        cwd: folder,
        env: {
          PATH: `${program}:${process.env.PATH}`,
          PYTHONUNBUFFERED: "1",
          SSRF_PROTECTION_ENABLED: "false",
          WEBHOOK_TIMEOUT: "30", // Of one second by default, which a busy machine exceeds.
          LABEL_STUDIO_BASE_DATA_DIR: folder,
          LATEST_VERSION_CHECK: "false",
          COLLECT_ANALYTICS: "false",
          SENTRY_DSN: "",
          FRONTEND_SENTRY_DSN: "",
          NO_PROXY: "127.0.0.1",
        },
      },
    );
    await server.says(/Starting development server at|Listening at/);
    const api = `http://127.0.0.1:${port}/api`;
    const headers = { Authorization: `Token ${TOKEN}` };
    const project = await call(
      "POST",
      `${api}/projects`,
      {
        title: "tests",
        label_config:
          '<View><Text name="t" value="$text"/><Choices name="c" toName="t"><Choice value="yes"/></Choices></View>',
      },
      headers,
    );
    const hook = await call(
      "POST",
      `${api}/webhooks/`,
      {
        project: project.id,
        url,
        headers: { Authorization: `Bearer ${secret}` },
        send_payload: true,
        send_for_all_actions: false,
        actions: ["ANNOTATION_CREATED"],
      },
      headers,
    );
    // A change that does not name the actions takes them away.
    const payload = (on) => {
      const change = { send_payload: on, actions: ["ANNOTATION_CREATED"] };
      return call("PATCH", `${api}/webhooks/${hook.id}/`, change, headers);
    };
    const annotate = async (text) => {
      const task = await call("POST", `${api}/tasks`, { project: project.id, data: { text } }, headers);
      const result = [{ from_name: "c", to_name: "t", type: "choices", value: { choices: ["yes"] } }];
      await call("POST", `${api}/tasks/${task.id}/annotations/`, { result }, headers);
      return text;
    };
    return {
      send: (n) => annotate(`task-${n}-of-tests`),
      /** Without its payload a request has the action only. */
      async equal() {
        await payload(false);
        await annotate("a task that is not named");
        await payload(true);
        return "ANNOTATION_CREATED";
      },
    };
  },
};
