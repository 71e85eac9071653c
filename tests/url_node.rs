//! The URLs of tests against Node: a URL that is accepted names the host, the port and the path that a client in
//! JavaScript would ask, and no accepted URL is one that such a client refuses.
//!
//! Without Node on the machine this test says so and passes; with `VERIFICA_REQUIRE_ALL=1` it fails instead.

mod node;

use verifica::probe::observation::Method;
use verifica::probe::url::{Target, UrlPolicy};

const URLS: usize = 20_000;

const READ: &str = r#"
const texts = JSON.parse(require('fs').readFileSync(0, 'utf8'));
const read = (t) => { try { const u = new URL(t); u.hash = ''; return u.href; } catch { return 'x'; } };
process.stdout.write(JSON.stringify(texts.map(read)));
"#;

struct Chance(u64);

impl Chance {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as usize
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }

    fn some(&mut self, from: &[&str], most: usize) -> String {
        (0..self.below(most + 1)).map(|_| self.pick(from).to_owned()).collect()
    }
}

fn url(chance: &mut Chance) -> String {
    const HOSTS: &[&str] = &[
        "seller.example",
        "Seller.EXAMPLE",
        "bücher.example",
        "xn--bcher-kva.example",
        "faß.example",
        "ａ.example",
        "s\u{ad}eller.example",
        "8.8.8.8",
        "134744072",
        "0x8.010.2056",
        "8.8.2056",
        "1.1.1.1.1",
        "seller.example.1",
        "seller.example.0x",
        "[2606:4700::1111]",
        "[2606:4700:0:0::1]",
        "[::ffff:8.8.8.8]",
        "s_eller.example",
        "-a.example",
        "a..example",
        "seller.example.",
        "seller%2eexample",
        "seller\u{3002}example",
        "seller。example",
        "s😀.example",
        "ⅷ.example",
        "ß.example",
        "xn--a.example",
        "a.xn--",
        "\u{1100}\u{1161}.example",
        "127.0.0.1",
        "localhost",
        "é.example",
        "e\u{301}.example",
        "seller.ex ample",
        "seller.example%00",
        "٣.example",
        "a\u{200d}b.example",
    ];
    const PORTS: &[&str] = &["", "", "", ":443", ":8443", ":0443", ":", ":65535", ":65536", ":8a", ":+8", ":\t8443"];
    const PIECES: &[&str] = &[
        "/", "\\", "a", "..", ".", "%2e%2e", "%2F", "?", "#", "é", "😀", " ", "\t", "\n", "\"", "<", "|", "'", "`",
        "{", "^", "~", "%", "%zz", "%C3", ":", "@", ";", "=", "&", "+", "\u{7f}", "\u{feff}", "\u{0}",
    ];
    let slashes = chance.pick(&["", "", "", "", "/", "\\", "\t"]);
    let tail = if chance.below(3) == 0 { String::new() } else { chance.pick(&["/", "?", "#", "\\"]).to_owned() };
    format!("https://{slashes}{}{}{tail}{}", chance.pick(HOSTS), chance.pick(PORTS), chance.some(PIECES, 6))
}

#[test]
fn an_accepted_url_is_requested_as_node_would_request_it() {
    let mut chance = Chance(node::seed(0x51ed_270b_9f4c_a5e1));
    let texts: Vec<String> = (0..URLS).map(|_| url(&mut chance)).collect();
    let Some(answers) = node::node(&["-e", READ], serde_json::json!(texts).to_string(), "the URLs") else { return };
    let answers: Vec<String> = serde_json::from_str(&answers).expect("a list of texts");
    let policy = UrlPolicy::default();
    let mut accepted = 0;
    let mut differ = Vec::new();
    for (text, node) in texts.iter().zip(&answers) {
        let Ok(target) = Target::parse(text, &policy) else { continue };
        accepted += 1;
        let ours = target.key(Method::Get, "*/*").url;
        if &ours != node {
            differ.push(format!("{text:?}: {ours} here, {node} there"));
        }
    }
    assert!(differ.is_empty(), "{} differ:\n{}", differ.len(), differ[..differ.len().min(30)].join("\n"));
    assert!(accepted > URLS / 4, "only {accepted} of {URLS} were accepted");
}
