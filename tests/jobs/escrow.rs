//! An escrow whose work is an archive at a URL, tested by an agreed program: released when it passes, refunded when it
//! does not, and what the verdict stands on judged again by anybody.

use super::house::*;
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};
use verifica::sandbox::JobPolicy;
use verifica::verdict::EvidenceName;
use verifica::wire::Sha256;

const PASSES: &str = "out=$(/bin/sh tool.sh); test \"$out\" = forty-two && echo good\n";
const FAILS: &str = "echo expected more >&2; exit 3\n";

/// V44, V45, V60 to V63, V84.
#[tokio::test(flavor = "multi_thread")]
async fn work_that_passes_is_paid_and_work_that_does_not_is_refunded() {
    if !able() {
        return;
    }
    for user in users() {
        for (test, state, verdict) in [(PASSES, "released", "pass"), (FAILS, "refunded", "fail")] {
            let work = archive(test);
            let site = site(work.clone());
            let mut house = House::new(user, &site);
            house.start();
            assert!(house.offered().await.contains(&"exit_0".to_owned()), "{user:?}");
            let (buyer, seller) = house.people().await;
            let mut terms = test_of_the_work();
            terms["verify"][0]["argv"] = json!(["/bin/sh", "-c", "cd work && /bin/sh test.sh"]);
            let contract = house.delivered(&buyer, &seller, terms.clone(), &work).await;
            let ended = contract_when(&buyer, &contract, ended).await;
            assert_eq!(ended["state"], state, "{user:?}: {ended:#}");
            let paid = if state == "released" { (900, 90) } else { (1_000, 0) };
            assert_eq!((house.balance(&buyer).await, house.balance(&seller).await), paid);

            // Both parties get the same evidence, with every attestation in it.
            let evidence = buyer.evidence(&contract).await.expect("evidence");
            assert_eq!(evidence, seller.evidence(&contract).await.expect("evidence"));
            let posted = ended["history"].as_array().expect("history").last().expect("ending")["veredicto"].clone();
            assert_eq!(posted["evidence"], json!(EvidenceName::of(&evidence)));
            let attestations = evidence["attestations"].as_array().expect("attestations");
            // Two looks, two runs each.
            assert_eq!(attestations.len(), 4);
            assert_eq!(posted["looks"][0]["attestations"].as_array().map(Vec::len), Some(2));
            for attestation in attestations {
                assert_eq!(attestation["contract"], json!(contract));
                assert_eq!(attestation["house"], DOMAIN);
                assert_eq!(attestation["exit"], json!({"code": if verdict == "pass" { 0 } else { 3 }}));
                assert_eq!(attestation["inputs"][0]["sha256"], json!(Sha256::of(&work)));
                assert_eq!(attestation["survivors"], 0);
                for own in [("own_uid", user == User::Ordinary), ("clock", true), ("advisory_locks", true)] {
                    let listed = attestation["not_claimed"].as_array().expect("list");
                    assert_eq!(
                        listed.iter().any(|item| item["id"] == own.0),
                        own.1 || (!is_root() && own.0 == "own_uid")
                    );
                }
            }
            offline(&house, &evidence, &posted, verdict);
            check_says_the_same(&house, &site, &terms, &work, &posted, verdict);
        }
    }
}

/// Nobody is asked, and every change is found.
fn offline(house: &House, evidence: &Value, posted: &Value, verdict: &str) {
    house.write("seen.json", evidence);
    let replayed = house.run(&["replay", "seen.json", "--json"]);
    assert_eq!(replayed.code, 0, "{}{}", replayed.out, replayed.err);
    let told = replayed.json();
    assert_eq!((&told["verdict"], &told["same"]), (&json!(verdict), &json!(true)));
    assert!(told["checks"].to_string().contains("4 runs"), "{told}");
    let key = posted["signature"]["kid"].as_str().expect("kid");
    let verified = house.run(&["verify", "seen.json", "--key", key, "--json"]);
    assert_eq!(verified.code, 0, "{}{}", verified.out, verified.err);
    // The verdict and four attestations.
    assert_eq!(verified.json()["documents"].as_array().map(Vec::len), Some(5));

    let changes: [fn(&mut Value); 5] = [
        |seen| seen["attestations"][1] = seen["attestations"][0].clone(),
        |seen| drop(seen["attestations"].as_array_mut().expect("list").pop()),
        |seen| seen["attestations"][0]["exit"] = json!({"code": 9}),
        |seen| seen["looks"][0]["runs"]["0"][0]["end"] = json!({"kind": "code", "code": 9}),
        |seen| seen["looks"][1]["runs"]["0"][0]["attestation"] = json!("0".repeat(64)),
    ];
    for (n, change) in changes.iter().enumerate() {
        let mut other = evidence.clone();
        change(&mut other);
        house.write("other.json", &other);
        assert_eq!(house.run(&["replay", "other.json"]).code, 1, "change {n}");
        assert_eq!(house.run(&["verify", "other.json", "--key", key]).code, 1, "change {n}");
    }
}

/// A seller's dry run under the same policy, from the URL and from disk.
fn check_says_the_same(
    house: &House,
    site: &super::site::Site,
    terms: &Value,
    work: &[u8],
    posted: &Value,
    verdict: &str,
) {
    house.write("terms.json", terms);
    std::fs::write(house.folder.path().join("ca.pem"), &site.ca_pem).expect("roots");
    std::fs::write(house.folder.path().join("work.tgz"), work).expect("work");
    let (resolve, hash) = (format!("seller.example:443:127.0.0.1:{}", site.address.port()), Sha256::of(work).hex());
    let from_url = ["--resolve", &resolve, "--ca", "ca.pem", "--allow-private"];
    let from_disk = ["--input", "work=work.tgz"];
    for (n, more) in [&from_url[..], &from_disk[..]].into_iter().enumerate() {
        let kept = format!("dry{n}.json");
        let mut args = vec!["check", "terms.json", "--evidence-sha256", &hash, "--json", "--evidence-out", &kept];
        args.extend_from_slice(more);
        let ran = house.run(&args);
        let told = ran.json();
        assert_eq!(
            (ran.code, &told["verdict"]),
            (i32::from(verdict == "fail"), &json!(verdict)),
            "{}{}",
            ran.out,
            ran.err
        );
        for field in ["pasa", "prueba", "razon"] {
            assert_eq!(told["resultados"][0][field], posted["resultados"][0][field]);
        }
        assert_eq!(told["sandbox"]["enforced"], true);
        let job = &told["jobs"][0];
        assert!(job["peak_memory"].as_u64().is_some_and(|bytes| bytes > 0), "{job}");
        assert!(job["wall_ms"].is_u64() && job["cpu_ms"].is_u64() && job["claims"].to_string().contains("landlock"));
        let (stream, words) = if verdict == "pass" { ("stdout", "good") } else { ("stderr", "expected more") };
        assert!(job[stream]["tail"].as_str().is_some_and(|tail| tail.contains(words)), "{job}");

        let replayed = house.run(&["replay", &kept, "--json"]);
        assert_eq!(replayed.code, 0, "{}{}", replayed.out, replayed.err);
        let key = house.folder.path().join(".local/state/verifica/check.key");
        assert!(key.exists());
        let again = house.run(&["check", "terms.json", "--evidence-sha256", &hash, "--json", "--offline", &kept]);
        assert_eq!(again.json()["verdict"], verdict, "{}", again.err);
    }
    let shown = house.run(&["check", "terms.json", "--evidence-sha256", &hash, "--input", "work=work.tgz", "--once"]);
    for words in ["peak memory", "wall", "protections proved", if verdict == "pass" { "good" } else { "expected more" }]
    {
        assert!(shown.out.contains(words), "{words}: {}{}", shown.out, shown.err);
    }
    assert!(shown.out.contains("1 run,"), "{}", shown.out);
    // Other bytes than the delivery declared are nobody's failure.
    std::fs::write(house.folder.path().join("other.tgz"), archive("exit 0\n# other")).expect("work");
    let other = house.run(&["check", "terms.json", "--evidence-sha256", &hash, "--input", "work=other.tgz"]);
    assert_eq!(other.code, 3, "{}{}", other.out, other.err);
    assert_eq!(house.run(&["check", "terms.json", "--input", "nothing=work.tgz"]).code, 2);
}

/// V5, V44: what was fetched is not what was delivered, or two looks of a program differ: nothing moves.
#[tokio::test(flavor = "multi_thread")]
async fn other_bytes_than_the_delivery_declared_move_nothing() {
    if !able() {
        return;
    }
    let site = site(archive(PASSES));
    let mut house = House::new(User::Own, &site);
    house.start();
    let (buyer, seller) = house.people().await;
    let contract = house.delivered(&buyer, &seller, test_of_the_work(), b"something else").await;
    let told = contract_when(&buyer, &contract, |contract| contract["look"].is_object()).await;
    assert_eq!(told["state"], "delivered");
    assert!(told["look"]["reason"].as_str().is_some_and(|why| why.contains("sha256")), "{told:#}");
    assert_eq!((house.balance(&buyer).await, house.balance(&seller).await), (900, 0));
    // The same without a declared hash at all.
    let contract = house.accepted(&buyer, &seller, test_of_the_work()).await.expect("accepted");
    house.order(&seller, json!({"op": "deliver", "contract": contract})).await.expect("delivered");
    let told = contract_when(&buyer, &contract, |contract| contract["look"].is_object()).await;
    assert!(told["look"]["reason"].as_str().is_some_and(|why| why.contains("declares none")), "{told:#}");
    // A run that decides nothing is not made up for by others.
    assert_eq!((house.balance(&buyer).await, house.balance(&seller).await), (800, 0));
}

/// V5, V44, V82: runs that differ decide nothing; a program that is not there fails, as was agreed.
#[tokio::test(flavor = "multi_thread")]
async fn runs_that_disagree_move_nothing_and_a_missing_program_fails() {
    if !able() {
        return;
    }
    let site = site(archive(PASSES));
    // A folder of the host that the policy lets jobs read, so that the world can change between two runs of one look.
    let world = tempfile::tempdir_in("/var/tmp").expect("folder");
    std::fs::set_permissions(world.path(), std::fs::Permissions::from_mode(0o755)).expect("mode");
    let readable = format!("value = [\"/usr\", \"{}\"]", world.path().display());
    let source = JobPolicy::source("default").expect("source").replace("value = [\"/usr\"]", &readable);
    assert!(JobPolicy::parse(&source).is_ok_and(|policy| policy.runs == 2 && policy.readable.len() == 2));
    let mut house = House::new(User::Own, &site).configured("job_policy = \"default\"", "job_policy = \"world.toml\"");
    std::fs::write(house.path("world.toml"), source).expect("policy");
    house.start();
    let (buyer, seller) = house.people().await;
    let changed = world.path().join("changed");
    let word = "4.8172";
    let once = format!("! test -e {} && sleep {word}", changed.display());
    let of = |argv: Value| json!({"verify": {"type": "exit_0", "argv": argv}});
    let contract = house.delivered(&buyer, &seller, of(json!(["/bin/sh", "-c", once])), b"").await;
    let begun = Instant::now();
    while processes_with(&format!("sleep\0{word}")) == 0 {
        assert!(begun.elapsed() < Duration::from_secs(20), "the first run does not begin");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    std::fs::write(&changed, "").expect("change");
    let told = contract_when(&buyer, &contract, |contract| contract["look"].is_object()).await;
    assert_eq!(told["state"], "delivered");
    assert!(told["look"]["reason"].as_str().is_some_and(|why| why.contains("the runs disagree")), "{told:#}");

    let contract = house.delivered(&buyer, &seller, of(json!(["/usr/bin/no-such-program"])), b"").await;
    let told = contract_when(&buyer, &contract, ended).await;
    assert_eq!(told["state"], "refunded");
    let evidence = buyer.evidence(&contract).await.expect("evidence");
    assert_eq!(evidence["attestations"].as_array().map(Vec::len), Some(4));
    assert_eq!(evidence["attestations"][0]["exit"]["refused"], "exec");
    assert_eq!((house.balance(&buyer).await, house.balance(&seller).await), (900, 0));
}
