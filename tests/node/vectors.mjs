// Writes fixtures/vectors/wire.json with Node's own JSON and crypto: `node tests/node/vectors.mjs > fixtures/vectors/wire.json`.
// The file is committed; the tests read it where there is no Node.
import crypto from "node:crypto";

const b64u = (bytes) => Buffer.from(bytes).toString("base64url");
const canonical = (value) => {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (value && typeof value === "object")
    return `{${Object.keys(value).sort().map((k) => `${JSON.stringify(k)}:${canonical(value[k])}`).join(",")}}`;
  return JSON.stringify(value);
};
const sha256 = (text) => crypto.createHash("sha256").update(text).digest("hex");
const keyOf = (prefix, seed) => {
  const der = Buffer.concat([Buffer.from(prefix, "hex"), Buffer.alloc(32, seed)]);
  const priv = crypto.createPrivateKey({ key: der, format: "der", type: "pkcs8" });
  return { priv, x: crypto.createPublicKey(priv).export({ format: "jwk" }).x, d: b64u(Buffer.alloc(32, seed)) };
};
const ed = (seed) => keyOf("302e020100300506032b657004220420", seed);
const xk = (seed) => keyOf("302e020100300506032b656e04220420", seed);
const signText = (text, key) => b64u(crypto.sign(null, Buffer.from(text), key.priv));
const sign = (doc, field, key) => {
  const { [field]: _, ...rest } = doc;
  return { ...rest, [field]: { alg: "Ed25519", kid: key.x, value: signText(canonical(rest), key) } };
};

const domain = ed(1), ana = ed(2), bot = ed(3), leoEnc = xk(4), anaEnc = xk(5);
const domainCard = sign({ nyx5: "1", domain: "a.example", estafeta: "https://mail.a.example",
  keys: [{ sig: domain.x, created: "2026-01-01T00:00:00.000Z" }], policy: { inbound: "verified", max_bytes: 1048576 },
  extensions: ["urn:nyx5:ext:libro"], issued: "2026-01-01T00:00:00.000Z", "x-later": { kept: ["é", 1] } }, "signature", domain);
const card = (local, key, more) => sign({ nyx5: "1", address: `${local}@a.example`, sig: key.x, enc: anaEnc.x,
  capabilities: { accepts: ["text/plain"] }, inbox: { policy: "open" }, valid_from: "2026-01-01T00:00:00.000Z",
  valid_until: null, previous: [], ...more }, "certification", domain);
const delegation = sign({ by: "ana@a.example", address: "bot.ana@a.example", sig: bot.x,
  scope: { types: ["message"], to_domains: ["a.example"], cap: 100 }, valid_until: null,
  issued: "2026-01-02T00:00:00.000Z" }, "signature", ana);
const envelope = { nyx5: "1", id: "7f0c1f6e-1111-4222-8333-444455556666", from: "ana@a.example", to: ["leo@b.example"],
  created: "2026-09-15T10:00:00.000Z", expires: null, thread: null, in_reply_to: null, type: "message" };

const seal = (content, doc, readers) => {
  const eph = xk(77), iv = Buffer.alloc(12, 8), cek = Buffer.alloc(32, 9);
  const gcm = (key, plain, nonce, aad) => {
    const c = crypto.createCipheriv("aes-256-gcm", key, nonce);
    if (aad) c.setAAD(Buffer.from(aad));
    const ct = Buffer.concat([c.update(plain), c.final()]);
    return { iv: b64u(nonce), ct: b64u(ct), tag: b64u(c.getAuthTag()) };
  };
  const keys = {};
  readers.forEach(([address, key], i) => {
    const secret = crypto.diffieHellman({ privateKey: eph.priv, publicKey: crypto.createPublicKey(key.priv) });
    const kek = Buffer.from(crypto.hkdfSync("sha256", secret, Buffer.from(eph.x), Buffer.from("nyx5/1 cek-wrap"), 32));
    keys[address] = gcm(kek, cek, Buffer.alloc(12, 20 + i));
  });
  const aad = canonical({ id: doc.id, from: doc.from, to: doc.to });
  return { alg: "X25519+HKDF-SHA256+A256GCM", epk: eph.x, ...gcm(cek, JSON.stringify(content), iv, aad), keys };
};
const content = { media: "text/plain", body: "hola ✓" };
const claims = { address: "ana@a.example", ts: "2026-09-15T10:00:00.000Z", nonce: "nonce-1", method: "GET",
  path: "/mailbox/ana", host: "mail.a.example" };
const work = (id, bits) => {
  for (let n = 0; ; n++) if (BigInt(`0x${sha256(`${id}:${n}`)}`) >> BigInt(256 - bits) === 0n) return String(n);
};
const texts = ['{"b":1,"a":[true,null,"x\\ny"]}', '{"a":1.0,"b":-0,"c":1e3,"d":10E-1}', '{"\\ud83d\\ude00":1,"\\uffee":2,"a":3}',
  '"\\u007f\\u2028\\/\\u001f\\b\\f\\u0000"', '{"a":1,"a":2}', '{"10":1,"9":2,"__proto__":3,"constructor":4}', " [ 1 , 2 ]\n", '""'];

process.stdout.write(`${JSON.stringify({
  canonical: texts.map((text) => ({ text, canonical: canonical(JSON.parse(text)) })),
  refused: ["1.5", "9007199254740992", "1e400", '"\\ud800"', "[1", "{\"a\":1} x", "01", "[1,]", "{a:1}", "NaN", "\ufeff1"],
  keys: { domain: domain.d, ana: ana.d, bot: bot.d, leo_enc: leoEnc.d, ana_enc: anaEnc.d,
    ana_public: ana.x, leo_enc_public: leoEnc.x },
  domain_card: domainCard,
  agent_card: card("ana", ana, { "x-later": [1] }),
  delegated_card: card("bot.ana", bot, { delegation }),
  envelope: sign({ ...envelope, content, extensions: { "urn:example:later": { kept: [1, "ü"] } } }, "signature", ana),
  envelope_sha256: sha256(canonical(sign({ ...envelope, content, extensions: { "urn:example:later": { kept: [1, "ü"] } } }, "signature", ana))),
  sealed: sign({ ...envelope, encrypted: seal(content, envelope, [["leo@b.example", leoEnc], ["ana@a.example", anaEnc]]) }, "signature", ana),
  sealed_content: content,
  token: { claims, header: `Nyx5 ${b64u(canonical(claims))}.${signText(canonical(claims), ana)}` },
  relay: { id: envelope.id, to: "b.example", header: `nyx51 domain=a.example; kid=${domain.x}; sig=${signText(`relay:${envelope.id}:b.example`, domain)}` },
  on_behalf: { target: "b.example", ts: "2026-09-15T10:00:00.000Z",
    header: `nyx51 domain=a.example; for=ana@a.example; ts=2026-09-15T10:00:00.000Z; kid=${domain.x}; sig=${signText("for:ana@a.example:b.example:2026-09-15T10:00:00.000Z", domain)}` },
  pow: { id: envelope.id, bits: 16, nonce: work(envelope.id, 16) },
  quote: sign({ tipo: "cotizacion", id: "9a0c1f6e-1111-4222-8333-444455556666", house: "a.example", seller: "ana@a.example",
    buyer: "leo@b.example", contract: "escrow", price: 200, currency: "tok", concept: "página web",
    terms: { verify: [{ type: "http_status", url: "https://seller.example/" }] }, arbiter: "verifica@a.example",
    referrer: { address: "eva@c.example", share: 500 }, issued: "2026-09-15T10:00:00.000Z", expires: null }, "signature", ana),
}, null, 1)}\n`);
