import { WorkOS } from "@workos-inc/node";

export const library = "@workos-inc/node";
export const secret = "made-for-tests-made-for-tests";
export const looksAtTime = true;

export async function judge({ body, headers }, secret) {
  const { webhooks } = new WorkOS("none");
  const event = await webhooks.constructEvent({ payload: body, sigHeader: headers["workos-signature"], secret });
  return { id: event.id, type: event.event };
}

export async function sign({ body, at }, secret) {
  const { webhooks } = new WorkOS("none");
  const signature = await webhooks.computeSignature(at * 1000, body, secret);
  return { "WorkOS-Signature": `t=${at * 1000}, v1=${signature}` };
}

export const sample = {
  id: "event_1",
  type: "organization.created",
  body:
    '{"id":"event_1","event":"organization.created","created_at":"2026-01-01T00:00:00.000Z",' +
    '"data":{"object":"organization","id":"org_1","name":"Made for tests","domains":[],"metadata":{}}}',
};
