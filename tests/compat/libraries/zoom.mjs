import { AwsLambdaReceiver } from "@zoom/rivet/meetings";

export const library = "@zoom/rivet";
export const secret = "made-for-tests-made-for-tests";

// It verifies what JSON.stringify makes of the parsed body, and looks at no time.
export async function judge({ body, headers }, webhooksSecretToken) {
  const receiver = new AwsLambdaReceiver({ webhooksSecretToken });
  let event;
  receiver.init({ eventEmitter: { emit: (type, payload) => (event = { type, payload }) } });
  const { statusCode } = await receiver.start()({ body: body.toString(), headers, isBase64Encoded: false });
  return statusCode === 200 && { id: undefined, type: event.type };
}
