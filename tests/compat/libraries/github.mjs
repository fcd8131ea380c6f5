import { Webhooks } from "@octokit/webhooks";

export const library = "@octokit/webhooks";
export const secret = "made-for-tests-made-for-tests";
export const type = "pull_request.closed";

/** It reads only JSON, not the form `payload=…` that GitHub can send instead. */
export async function judge({ body, headers }, secret) {
  const webhooks = new Webhooks({ secret });
  let event;
  webhooks.onAny((received) => {
    event = received;
  });
  await webhooks.verifyAndReceive({
    id: headers["x-github-delivery"],
    name: headers["x-github-event"],
    payload: body.toString(),
    signature: headers["x-hub-signature-256"],
  });
  const { action } = event.payload;
  return { id: event.id, type: action ? `${event.name}.${action}` : event.name };
}

export async function sign({ body, id, type }, secret) {
  return {
    "content-type": "application/json",
    "x-github-delivery": id,
    "x-github-event": type.split(".")[0],
    "x-hub-signature-256": await new Webhooks({ secret }).sign(body),
  };
}

export const sample = {
  id: "72d3162e-cc78-11e3-81ab-4c9367dc0958",
  type: "pull_request.closed",
  body: '{"action":"closed","number":1}',
};
