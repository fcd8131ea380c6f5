// MLflow's server with SQLite, in which registered models are made.

import { join } from "node:path";

import { call } from "./install.mjs";
import { freePort } from "./process.mjs";

export const sender = {
  version: "MLflow 3.17.2 (PyPI)",
  provider: "mlflow",
  type: "registered_model.created",
  id: ({ headers }) => headers.find(([name]) => name.toLowerCase() === "x-mlflow-delivery-id")[1],
  repeated: "duplicate",
  resends: { 503: true, 401: false, broken: true },

  install: (place) => place.python(),

  async start({ place, program, url, secret, folder }) {
    const port = await freePort();
    const server = place.start(
      join(program, "mlflow"),
      [
        ["server", "--workers", "1", "--host", "127.0.0.1", "--port", String(port)],
        ["--backend-store-uri", `sqlite:///${join(folder, "mlflow.db")}`],
        ["--artifacts-destination", join(folder, "artifacts")],
      ].flat(),
      {
        cwd: folder,
        env: {
          PATH: `${program}:${process.env.PATH}`,
          PYTHONUNBUFFERED: "1",
          MLFLOW_WEBHOOK_ALLOWED_SCHEMES: "http",
          MLFLOW_WEBHOOK_ALLOW_PRIVATE_IPS: "true",
          MLFLOW_DISABLE_TELEMETRY: "true",
          NO_PROXY: "127.0.0.1",
        },
      },
    );
    await server.says(/Application startup complete/);
    await server.says(/Uvicorn running on/);
    const api = `http://127.0.0.1:${port}/api/2.0/mlflow`;
    await call("POST", `${api}/webhooks`, {
      name: "hooklatch",
      url,
      secret,
      status: "ACTIVE",
      events: [{ entity: "REGISTERED_MODEL", action: "CREATED" }],
    });
    return {
      async send(n) {
        const name = `model-${n}-of-tests`;
        await call("POST", `${api}/registered-models/create`, { name });
        return name;
      },
    };
  },
};
