import Mux from "@mux/mux-node";

export const library = "@mux/mux-node";
export const secret = "made-for-tests-made-for-tests";
export const looksAtTime = true;

export async function judge({ body, headers }, secret) {
  const mux = new Mux({ tokenId: "none", tokenSecret: "none" });
  const event = await mux.webhooks.unwrap(body.toString(), headers, secret);
  return { id: event.id, type: event.type };
}
