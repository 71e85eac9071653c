//! A host that cannot enforce the sandbox: refused at `accept`, undecided afterwards, said by the card and by `check`.

use super::house::*;
use serde_json::json;
use std::process::Command;
use verifica::client::agent::ClientError;

/// A hard limit below that of the policy: the job could not get its own, so nothing may run.
const TOO_LITTLE: &str = "ulimit -n 200;";

/// V11, V81.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_mechanism_no_money_is_locked_and_the_card_does_not_offer_it() {
    let site = site(archive("exit 0\n"));
    for user in users() {
        let mut house = House::new(user, &site).after(TOO_LITTLE);
        house.start();
        let offered = house.offered().await;
        assert!(!offered.contains(&"exit_0".to_owned()) && offered.contains(&"sha256".to_owned()), "{offered:?}");
        let (buyer, seller) = house.people().await;
        match house.accepted(&buyer, &seller, test_of_the_work()).await {
            Err(ClientError::Bounced { reason, code, .. }) => {
                assert_eq!(code, Some(400), "{reason}");
                assert!(reason.contains("the sandbox cannot be enforced here: limits"), "{reason}");
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(house.balance(&buyer).await, 1_000);
        house.write("test.json", &json!({"type": "exit_0", "argv": ["true"]}));
        let script = format!("{TOO_LITTLE} exec \"$0\" check test.json --json");
        let mut check = Command::new("/bin/sh");
        check.args(["-c", &script]).arg(env!("CARGO_BIN_EXE_verifica")).env_clear();
        let check = check.env("HOME", house.folder.path()).current_dir(house.folder.path()).output().expect("check");
        let told: serde_json::Value = serde_json::from_slice(&check.stdout).expect("json");
        assert_eq!((check.status.code(), &told["verdict"]), (Some(4), &json!("undecided")), "{told:#}");
        assert!(told["sandbox"]["missing"].as_str().is_some_and(|why| why.starts_with("limits")), "{told:#}");
    }
}

/// V63, V84, V86: the mechanism goes while the house runs.
#[tokio::test(flavor = "multi_thread")]
async fn a_launch_that_is_refused_moves_nothing_signs_why_and_ends_the_offer() {
    if !able() {
        return;
    }
    let work = archive("exit 0\n");
    let site = site(work.clone());
    for user in users() {
        let mut house = House::new(user, &site);
        house.start();
        let (buyer, seller) = house.people().await;
        let contract = house.accepted(&buyer, &seller, test_of_the_work()).await.expect("accepted");
        house.lower_limits();
        let op = json!({"op": "deliver", "contract": contract, "evidence_sha256": verifica::wire::Sha256::of(&work)});
        house.order(&seller, op).await.expect("delivered");
        let told = contract_when(&buyer, &contract, |contract| contract["look"].is_object()).await;
        assert_eq!(told["state"], "delivered");
        let refusal = &told["look"]["attestations"][0];
        assert_eq!((&refusal["exit"]["refused"], &refusal["started"]), (&json!("limits"), &json!(false)), "{told:#}");
        assert_eq!((&refusal["contract"], &refusal["by"]), (&json!(contract), &json!(house.verifica())));
        house.write("told.json", &told);
        let kid = refusal["signature"]["kid"].as_str().expect("kid");
        let verified = house.run(&["verify", "told.json", "--key", kid]);
        assert_eq!(verified.code, 0, "{}{}", verified.out, verified.err);
        assert_eq!((house.balance(&buyer).await, house.balance(&seller).await), (900, 0));
        // What the house found out, its card says, and no further money is locked.
        for _ in 0..100 {
            if !house.offered().await.contains(&"exit_0".to_owned()) {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        assert!(!house.offered().await.contains(&"exit_0".to_owned()));
        assert!(house.accepted(&buyer, &seller, test_of_the_work()).await.is_err());
        // The parties are free to settle by hand.
        house.order(&buyer, json!({"op": "release", "contract": contract})).await.expect("released by hand");
    }
}

/// A sandbox that comes back is found on the signal that asks for it.
#[tokio::test(flavor = "multi_thread")]
async fn the_offer_is_asked_again_on_a_signal() {
    if !able() {
        return;
    }
    let site = site(archive("exit 0\n"));
    let mut house = House::new(User::Own, &site);
    house.start();
    assert!(house.offered().await.contains(&"exit_0".to_owned()));
    house.lower_limits();
    house.signal("HUP");
    for _ in 0..100 {
        if !house.offered().await.contains(&"exit_0".to_owned()) {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("the card still offers what this host cannot run");
}
