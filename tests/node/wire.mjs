// A second implementation of the protocol's bytes, over Node's own JSON and crypto. Reads one JSON command a line,
// writes one JSON answer a line.
import crypto from "node:crypto";
import readline from "node:readline";

const b64u = (bytes) => Buffer.from(bytes).toString("base64url");
const from = (text) => Buffer.from(text, "base64url");

export const canonical = (value) => {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (value && typeof value === "object") {
    const keys = Object.keys(value).sort();
    return `{${keys.map((key) => `${JSON.stringify(key)}:${canonical(value[key])}`).join(",")}}`;
  }
  return JSON.stringify(value);
};
const without = (object, field) => Object.fromEntries(Object.entries(object).filter(([key]) => key !== field));

const okp = (crv, x, d) => ({ kty: "OKP", crv, x, ...(d ? { d } : {}) });
const privateKey = (crv, x, d) => crypto.createPrivateKey({ key: okp(crv, x, d), format: "jwk" });
const publicKey = (crv, x) => crypto.createPublicKey({ key: okp(crv, x), format: "jwk" });

const signText = (text, key) => b64u(crypto.sign(null, Buffer.from(text), privateKey("Ed25519", key.x, key.d)));
const verifyText = (text, x, value) => crypto.verify(null, Buffer.from(text), publicKey("Ed25519", x), from(value));
const signObject = (doc, field, key) => {
  const text = canonical(without(doc, field));
  return { ...doc, [field]: { alg: "Ed25519", kid: key.x, value: signText(text, key) } };
};
const verifyObject = (doc, field) => verifyText(canonical(without(doc, field)), doc[field].kid, doc[field].value);

const wrapKey = (secret, epk) =>
  Buffer.from(crypto.hkdfSync("sha256", secret, Buffer.from(epk), Buffer.from("nyx5/1 cek-wrap"), 32));
const gcm = (key, plain, aad) => {
  const iv = crypto.randomBytes(12);
  const cipher = crypto.createCipheriv("aes-256-gcm", key, iv);
  if (aad) cipher.setAAD(Buffer.from(aad));
  const ct = Buffer.concat([cipher.update(plain), cipher.final()]);
  return { iv: b64u(iv), ct: b64u(ct), tag: b64u(cipher.getAuthTag()) };
};
const ungcm = (key, part, aad) => {
  const decipher = crypto.createDecipheriv("aes-256-gcm", key, from(part.iv));
  if (aad) decipher.setAAD(Buffer.from(aad));
  decipher.setAuthTag(from(part.tag));
  return Buffer.concat([decipher.update(from(part.ct)), decipher.final()]);
};
const seal = (content, binding, readers) => {
  const ephemeral = crypto.generateKeyPairSync("x25519");
  const epk = ephemeral.publicKey.export({ format: "jwk" }).x;
  const cek = crypto.randomBytes(32);
  const keys = {};
  for (const [address, x] of Object.entries(readers)) {
    const secret = crypto.diffieHellman({ privateKey: ephemeral.privateKey, publicKey: publicKey("X25519", x) });
    keys[address] = gcm(wrapKey(secret, epk), cek);
  }
  const body = gcm(cek, JSON.stringify(content), canonical(binding));
  return { alg: "X25519+HKDF-SHA256+A256GCM", epk, ...body, keys };
};
const open = (sealed, binding, reader, key) => {
  const secret = crypto.diffieHellman({
    privateKey: privateKey("X25519", key.x, key.d),
    publicKey: publicKey("X25519", sealed.epk),
  });
  const cek = ungcm(wrapKey(secret, sealed.epk), sealed.keys[reader]);
  return JSON.parse(ungcm(cek, sealed, canonical(binding)));
};

const binding = (envelope) => ({ id: envelope.id, from: envelope.from, to: envelope.to });
const commands = {
  canonical: ({ text }) => canonical(JSON.parse(text)),
  // The answer is the document's text, so that key order and spacing differ from ours.
  sign: ({ text, field, key }) => JSON.stringify(signObject(JSON.parse(text), field, key), null, 1),
  verify: ({ text, field }) => verifyObject(JSON.parse(text), field),
  sign_text: ({ text, key }) => signText(text, key),
  verify_text: ({ text, x, value }) => verifyText(text, x, value),
  sealed_envelope: ({ text, content, readers, key }) => {
    const envelope = JSON.parse(text);
    envelope.encrypted = seal(content, binding(envelope), readers);
    return JSON.stringify(signObject(envelope, "signature", key));
  },
  open: ({ text, reader, key }) => {
    const envelope = JSON.parse(text);
    return open(envelope.encrypted, binding(envelope), reader, key);
  },
  sha256: ({ text }) => crypto.createHash("sha256").update(canonical(JSON.parse(text))).digest("hex"),
  pow: ({ id, nonce }) => crypto.createHash("sha256").update(`${id}:${nonce}`).digest("hex"),
};

for await (const line of readline.createInterface({ input: process.stdin })) {
  const { do: name, ...input } = JSON.parse(line);
  let answer;
  try {
    answer = { ok: commands[name](input) };
  } catch (error) {
    answer = { error: String(error) };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
