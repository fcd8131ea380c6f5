// Alertmanager with a user and a password.

import { alertmanager } from "./alertmanager.mjs";

export const sender = {
  ...alertmanager("alertmanager-basic", (secret) => {
    const [username, password] = secret.split(":");
    return `basic_auth: { username: "${username}", password: "${password}" }`;
  }),
  secret: () => "hooklatch:made-for-tests",
};
