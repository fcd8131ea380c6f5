import { Bot, webhookCallback } from "grammy";

export const library = "grammy";
export const secret = "made-for-tests-made-for-tests";

const botInfo = { id: 1, is_bot: true, first_name: "a", username: "a_bot" };

export async function judge({ body, headers, url }, secretToken) {
  const bot = new Bot("1:none", { botInfo });
  let update;
  bot.use((context) => {
    ({ update } = context);
  });
  const answer = webhookCallback(bot, "std/http", { secretToken });
  const { status } = await answer(new Request(url, { method: "POST", body, headers }));
  return status === 200 && { id: String(update.update_id), type: undefined };
}
