import { validateWebhook } from "replicate";

export const library = "replicate"; // it does not look at the time
export const secret = "whsec_bWFkZSBmb3IgdGVzdHMsIDI0IGJ5dGVz";

export async function judge({ body, headers }, secret) {
  if (!(await validateWebhook({ headers, body: body.toString() }, secret))) return false;
  return { id: headers["webhook-id"], type: JSON.parse(body).status };
}
