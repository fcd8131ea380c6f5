import utils from "mailersend/lib/services/mailersend.utils.js"; // which its index leaves out

export const library = "mailersend";
export const secret = "made-for-tests-made-for-tests";

export function judge({ body, headers }, secret) {
  if (!utils.MailerSendUtils.verifyWebHook(body, headers.signature, secret)) return false;
  const { type, data } = JSON.parse(body);
  return { id: data?.type && data.id && `${type}:${data.type}:${data.id}`, type };
}
