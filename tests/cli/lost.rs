//! Answers that are lost on the way: whoever repeats what the program says to repeat pays once.

use super::house::HouseProcess;
use super::{Ran, folder, verifica};
use serde_json::json;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// A way to a house on which, while it is bad, every request to send or to issue arrives and no answer comes back.
struct Way {
    url: String,
    bad: Arc<AtomicBool>,
}

impl Way {
    fn to(house: &HouseProcess) -> Way {
        let listener = TcpListener::bind("127.0.0.1:0").expect("port");
        let url = format!("http://{}", listener.local_addr().expect("address"));
        let bad = Arc::new(AtomicBool::new(false));
        let (there, lossy) = (house.url.trim_start_matches("http://").to_owned(), bad.clone());
        thread::spawn(move || {
            for near in listener.incoming().flatten() {
                let Ok(far) = TcpStream::connect(&there) else { continue };
                let swallow = Arc::new(AtomicBool::new(false));
                let (near_in, far_in) = (near.try_clone().expect("clone"), far.try_clone().expect("clone"));
                let (lossy, swallows) = (lossy.clone(), swallow.clone());
                thread::spawn(move || {
                    pump(near_in, far_in, |bytes| {
                        let sends = bytes.starts_with(b"POST /outbound") || bytes.starts_with(b"POST /libro/topup");
                        swallow.fetch_or(sends && lossy.load(Ordering::SeqCst), Ordering::SeqCst);
                        true
                    });
                });
                thread::spawn(move || pump(far, near, |_| !swallows.load(Ordering::SeqCst)));
            }
        });
        Way { url, bad }
    }

    fn is_bad(&self, bad: bool) {
        self.bad.store(bad, Ordering::SeqCst);
    }
}

/// Passes bytes on until either side ends or `passes` says no.
fn pump(mut from: TcpStream, mut to: TcpStream, passes: impl Fn(&[u8]) -> bool) {
    let mut bytes = [0; 65_536];
    while let Ok(n) = from.read(&mut bytes) {
        if n == 0 || !passes(&bytes[..n]) || to.write_all(&bytes[..n]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

/// The id that a failure tells to repeat.
fn told(ran: &Ran) -> String {
    assert_eq!(ran.code, 69, "{}{}", ran.out, ran.err);
    let failure = ran.json();
    let hint = failure["hint"].as_str().expect("a hint").to_owned();
    let id = hint.split_once("--id ").expect("an id").1.split([' ', ':']).next().expect("an id").to_owned();
    assert!(failure["what"].as_str().is_some_and(|what| what.starts_with(&format!("order {id}: "))), "{failure}");
    id
}

#[test]
fn an_order_whose_answer_was_lost_is_repeated_and_done_once() {
    let folder = folder();
    let house = HouseProcess::start(folder.path(), "mar.example");
    let way = Way::to(&house);
    let run = |args: &[&str]| verifica(folder.path(), args);
    let token = house.folder.join("admin.token");
    let token = token.to_str().expect("path");
    for name in ["anabel", "leandro"] {
        let (address, file) = (format!("{name}@mar.example"), format!("{name}.json"));
        assert_eq!(run(&["agent", "new", &address, "--house", &way.url, "--as", &file]).code, 0);
        let joined = run(&["agent", "join", "--as", &file, "--admin-token-file", token]);
        assert_eq!(joined.code, 0, "{}", joined.err);
    }
    let topup = |more: &[&str]| {
        let mut args = vec!["libro", "topup", "anabel@mar.example", "100", "--house", &way.url, "--json"];
        args.extend(["--admin-token-file", token]);
        args.extend(more);
        run(&args)
    };
    way.is_bad(true);
    let id = told(&topup(&[]));
    way.is_bad(false);
    let again = topup(&["--id", &id]);
    assert_eq!((again.code, &again.json()["duplicate"]), (0, &json!(true)), "{}", again.out);
    assert_eq!(topup(&["--id", &id, "--concept", "another"]).code, 5);

    let pay = |amount: &str, more: &[&str]| {
        let mut args = vec!["libro", "pay", "leandro@mar.example", amount, "--as", "anabel.json", "--json"];
        args.extend(more);
        run(&args)
    };
    way.is_bad(true);
    let id = told(&pay("10", &[]));
    let file = folder.path().join("anabel.json.pending").join(format!("{id}.json"));
    assert_eq!(std::fs::metadata(&file).expect("pending").mode() & 0o777, 0o600);
    assert_eq!(told(&pay("10", &["--id", &id])), id);
    assert_eq!(pay("11", &["--id", &id]).code, 2, "another order is pending under this id");
    way.is_bad(false);
    let paid = pay("10", &["--id", &id]);
    assert_eq!((paid.code, &paid.json()["id"]), (0, &json!(id)), "{}", paid.out);
    assert!(!file.exists());
    // With its file gone the id cannot be used for a second payment.
    assert_eq!(pay("10", &["--id", &id]).code, 5);
    assert_eq!(pay("10", &["--id", "short"]).code, 2);
    let balance = run(&["libro", "balance", "--as", "leandro.json", "--quiet"]);
    assert_eq!(balance.out, "10\n");
    let balance = run(&["libro", "balance", "--as", "anabel.json", "--quiet"]);
    assert_eq!(balance.out, "90\n");

    way.is_bad(true);
    let send = |more: &[&str]| {
        let mut args = vec!["agent", "send", "leandro@mar.example", "--as", "anabel.json", "--body", "hola", "--json"];
        args.extend(more);
        run(&args)
    };
    let id = told(&send(&[]));
    way.is_bad(false);
    assert_eq!(send(&["--id", &id]).code, 0);
    let from = ["agent", "inbox", "--as", "leandro.json", "--from", "anabel@mar.example", "--json"];
    let inbox = run(&[&from[..], &["--wait", "5"]].concat()).json();
    assert_eq!(inbox["messages"][0]["id"], json!(id));
    assert_eq!(run(&from).json()["messages"].as_array().map(Vec::len), Some(1));
}
