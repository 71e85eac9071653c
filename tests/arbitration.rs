//! Escrows arbitrated end to end: real houses over HTTP, a real store, real HTTPS probes, signed verdicts.

#[allow(dead_code)]
mod hostile;
#[allow(dead_code)]
mod support;

use serde_json::{Value, json};
use std::time::Duration;
use support::{Site, TestHouse, accepted_and_delivered, contract_in, ok, order, quote, status};
use verifica::client::agent::{ClientError, Message, Privacy};
use verifica::ids::Ids;
use verifica::observe::jobs::Order;
use verifica::observe::look::{Eyes, look};
use verifica::probe::plan::{Capabilities, Suite};
use verifica::probe::sha256::Delivery;
use verifica::probe::url::UrlPolicy;
use verifica::verdict::check_json;
use verifica::wire::{Address, Sha256};

const BODY: &str = r#"{"status":"ready","version":3,"items":[{"name":"uno"}]}"#;

fn five_tests() -> Value {
    json!([
        {"type": "http_status", "url": "https://seller.example/"},
        {"type": "sha256", "url": "https://seller.example/", "expect": Sha256::of(BODY)},
        {"type": "json_path", "url": "https://seller.example/", "path": "items[0].name", "expect": "uno"},
        {"type": "regex", "url": "https://seller.example/", "pattern": "\"version\":\\d+"},
        {"type": "header", "url": "https://seller.example/", "name": "X-Build", "equals": "7"},
    ])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_passing_escrow_pays_and_a_failing_one_refunds() {
    let site = Site::start().await;
    let mut house = TestHouse::new("mar.example", 1).arbitrating(site.fetcher());
    house.start().await;
    let (buyer, seller) = (house.join("ana-buys", 11).await, house.join("leo-sells", 12).await);
    house.topup(buyer.address(), 1_000).await;
    let mut ids = Ids::from_seed([1; 32]);

    site.show(ok("x-build: 7\r\n", BODY));
    let terms = json!({"verify": five_tests()});
    let paid = accepted_and_delivered(&house, &buyer, &seller, 200, terms.clone(), &mut ids).await;
    let contract = contract_in(&seller, &paid, &["released", "refunded"]).await;
    assert_eq!(contract["state"], "released");
    let balances = house.balances().await;
    assert_eq!((balances["leo-sells@mar.example"], balances["ana-buys@mar.example"]), (180, 800));
    assert_eq!(balances["casa@mar.example"], -980);

    site.show(ok("x-build: 8\r\n", BODY));
    let failed = accepted_and_delivered(&house, &buyer, &seller, 200, terms.clone(), &mut ids).await;
    let contract = contract_in(&buyer, &failed, &["released", "refunded"]).await;
    assert_eq!(contract["state"], "refunded");
    assert_eq!(house.balances().await["ana-buys@mar.example"], 800);

    // The verdict is kept in the contract for both outcomes, signed by the house, after two looks.
    for (id, passes) in [(&paid, true), (&failed, false)] {
        let contract = buyer.contract(id).await.expect("contract");
        let ending = contract["history"].as_array().expect("history").last().expect("ending").clone();
        assert_eq!(ending["by"], "verifica@mar.example");
        let verdict = &ending["veredicto"];
        assert!(house.public_key().verify_object(verdict, "signature"), "{verdict:#}");
        assert_eq!((&verdict["pasa"], &verdict["indeciso"]), (&json!(passes), &json!(false)));
        assert_eq!(verdict["looks"].as_array().map(Vec::len), Some(2));
        assert_eq!(verdict["resultados"].as_array().map(Vec::len), Some(5));
    }

    // A dry run of the same tests against the same world says the same, test by test.
    let urls = UrlPolicy { addresses: hostile::loopback() };
    let suite = std::sync::Arc::new(Suite::from_terms(&terms, &urls, &Capabilities::network()));
    let clock = verifica::client::agent::SystemClock;
    let eyes = Eyes { fetcher: site.fetcher(), jobs: None, timeout_ms: 10_000 };
    let dry = look(&eyes, &suite, &Delivery::default(), &Order::default(), &clock).await;
    let dry = check_json(&dry.look.results);
    let contract = buyer.contract(&failed).await.expect("contract");
    let verdict = contract["history"].as_array().expect("history").last().expect("ending")["veredicto"].clone();
    for (ours, posted) in
        dry["resultados"].as_array().expect("list").iter().zip(verdict["resultados"].as_array().expect("list"))
    {
        for field in ["pasa", "prueba", "razon"] {
            assert_eq!(ours[field], posted[field]);
        }
    }
    // All parties have signed receipts of the endings.
    for client in [&buyer, &seller] {
        let mail = client.inbox(100).await.expect("inbox");
        for id in [&paid, &failed] {
            let told = mail.iter().any(|mail| {
                let body = &mail.envelope()["content"]["body"];
                mail.from() == "libro@mar.example"
                    && matches!(body["op"].as_str(), Some("release" | "refund"))
                    && body["contract"]["id"] == **id
            });
            assert!(told, "{} has no receipt of {id}", client.address());
        }
    }
    house.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_escrow_between_two_houses_is_arbitrated_by_the_contracts_house() {
    let site = Site::start().await;
    let (here, there) = (TestHouse::new("mar.example", 1), TestHouse::new("sal.example", 2));
    let there_knows = there.knows(&here);
    let mut here = here.knows(&there_knows).arbitrating(site.fetcher());
    let mut there = there_knows;
    here.start().await;
    there.start().await;
    let (buyer, seller) = (here.join("ana-buys", 11).await, there.join("leo-sells", 12).await);
    here.topup(buyer.address(), 500).await;
    site.show(ok("x-build: 7\r\n", BODY));
    let mut ids = Ids::from_seed([2; 32]);

    let quote = quote(&here, &seller, buyer.address(), 200, json!({"verify": five_tests()}), &mut ids);
    let accepted = order(&buyer, &here.libro(), json!({"op": "accept", "quote": quote})).await.expect("accepted");
    let contract = accepted.body["contract"]["id"].as_str().expect("id").to_owned();
    // The seller's house is away while the contract is made, and comes back.
    there.stop().await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    there.start().await;
    order(&seller, &here.libro(), json!({"op": "deliver", "contract": contract})).await.expect("delivered");
    let ended = contract_in(&buyer, &contract, &["released", "refunded"]).await;
    assert_eq!(ended["state"], "released");
    let balances = here.balances().await;
    assert_eq!(balances["leo-sells@sal.example"], 180);
    // The foreign seller's receipt crossed over.
    let mut told = false;
    for _ in 0..200 {
        let mail = seller.inbox(100).await.expect("inbox");
        told = mail.iter().any(|mail| {
            let body = &mail.envelope()["content"]["body"];
            mail.from() == "libro@mar.example" && body["op"] == "release" && body["contract"]["id"] == *contract
        });
        if told {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(told, "no receipt reached the seller");
    here.stop().await;
    there.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_in_doubt_moves_nothing_and_delays_nobody() {
    let site = Site::start().await;
    let mut house = TestHouse::new("mar.example", 1).arbitrating(site.fetcher());
    house.start().await;
    let (buyer, seller) = (house.join("ana-buys", 11).await, house.join("leo-sells", 12).await);
    house.topup(buyer.address(), 5_000).await;
    let mut ids = Ids::from_seed([3; 32]);

    // The edge answers for the origin: nobody's fault, nothing moves. Twenty such contracts starve nobody.
    site.show(status(522));
    let terms = json!({"verify": [{"type": "http_status", "url": "https://seller.example/", "expect": 200}]});
    let mut stuck = Vec::new();
    for _ in 0..20 {
        stuck.push(accepted_and_delivered(&house, &buyer, &seller, 10, terms.clone(), &mut ids).await);
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    let other = house.join("eva-sells", 13).await;
    let hash = json!({"verify": {"type": "sha256", "expect": Sha256::of("work")}});
    let quote = quote(&house, &other, buyer.address(), 100, hash, &mut ids);
    let accepted = order(&buyer, &house.libro(), json!({"op": "accept", "quote": quote})).await.expect("accepted");
    let contract = accepted.body["contract"]["id"].as_str().expect("id").to_owned();
    let delivery = json!({"op": "deliver", "contract": contract, "evidence_sha256": Sha256::of("work")});
    order(&other, &house.libro(), delivery).await.expect("delivered");
    assert_eq!(contract_in(&other, &contract, &["released", "refunded"]).await["state"], "released");
    for contract in &stuck {
        assert_eq!(buyer.contract(contract).await.expect("contract")["state"], "delivered");
    }
    assert_eq!(house.balances().await.get("leo-sells@mar.example"), None);
    // The parties may still settle by hand.
    order(&buyer, &house.libro(), json!({"op": "release", "contract": stuck[0]})).await.expect("released by hand");
    assert_eq!(house.balances().await["leo-sells@mar.example"], 9);
    house.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn money_is_never_locked_behind_a_test_that_cannot_decide() {
    let site = Site::start().await;
    let mut house = TestHouse::new("mar.example", 1).arbitrating(site.fetcher());
    house.start().await;
    let (buyer, seller) = (house.join("ana-buys", 11).await, house.join("leo-sells", 12).await);
    house.topup(buyer.address(), 1_000).await;
    let mut ids = Ids::from_seed([4; 32]);
    let url = "https://seller.example/";
    let refused = [
        (json!([]), "empty"),
        (json!(null), "declares no tests"),
        (json!([{"type": "http_status"}]), "url"),
        (json!([{"type": "http_status", "url": "http://seller.example/"}]), "https"),
        (json!([{"type": "http_status", "url": "https://10.0.0.1/"}]), "10.0.0.1"),
        (json!([{"type": "exit_0", "argv": ["true"]}]), "exit_0"),
        (json!([{"type": "opinion", "url": url}]), "opinion"),
        (json!([{"type": "regex", "url": url, "pattern": "(a+)+"}]), "pattern"),
        (json!([{"type": "http_status", "url": url, "expect": 200, "also": 1}]), "also"),
        (json!(vec![json!({"type": "http_status", "url": url}); 17]), "16"),
    ];
    for (verify, named) in refused {
        let quote = quote(&house, &seller, buyer.address(), 100, json!({"verify": verify}), &mut ids);
        match order(&buyer, &house.libro(), json!({"op": "accept", "quote": quote})).await {
            Err(ClientError::Bounced { reason, code, .. }) => {
                assert_eq!(code, Some(400), "{reason}");
                assert!(reason.contains(named), "{named}: {reason}");
            }
            other => panic!("{named}: {other:?}"),
        }
    }
    // Nor behind a name of the house's own, which never spends.
    for to in [house.libro(), house.verifica()] {
        match order(&buyer, &house.libro(), json!({"op": "pay", "to": to, "amount": 1})).await {
            Err(ClientError::Bounced { code, .. }) => assert_eq!(code, Some(400), "{to}"),
            other => panic!("{to}: {other:?}"),
        }
    }
    assert_eq!(house.balances().await["ana-buys@mar.example"], 1_000);
    house.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_fails_because_the_house_changed_its_rules_after_it_accepted() {
    let site = Site::start().await;
    let mut house = TestHouse::new("mar.example", 1).arbitrating(site.fetcher());
    house.start().await;
    let (buyer, seller) = (house.join("ana-buys", 11).await, house.join("leo-sells", 12).await);
    house.topup(buyer.address(), 1_000).await;
    let mut ids = Ids::from_seed([5; 32]);
    site.show(status(522));
    let url = format!("https://127.0.0.1:{}/", site.server.address.port());
    let terms = json!({"verify": [{"type": "http_status", "url": url}]});
    let contract = accepted_and_delivered(&house, &buyer, &seller, 100, terms, &mut ids).await;
    house.stop().await;

    // The operator closes the network that this test names: it can no longer be judged here, and is no failure.
    let open = std::mem::take(&mut house.addresses);
    site.show(status(200));
    house.start().await;
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!(buyer.contract(&contract).await.expect("contract")["state"], "delivered");
    house.stop().await;

    house.addresses = open;
    house.start().await;
    assert_eq!(contract_in(&buyer, &contract, &["released", "refunded"]).await["state"], "released");
    house.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_letter_in_clear_to_a_house_that_is_away_is_left_to_the_queue() {
    let away = TestHouse::new("rio.example", 2);
    let mut house = TestHouse::new("mar.example", 1).knows(&away);
    house.start().await;
    let client = house.join("ana-buys", 11).await;
    let mut message = Message::order(&away.libro(), &json!("hola"));
    message.to = vec![Address::parse("leo.rio@rio.example").expect("address")];
    message.media = "text/plain".to_owned();
    let sent = client.send(&message).await.expect("taken");
    let outbox = client.outbox().await.expect("outbox");
    assert!(outbox.iter().any(|job| job["id"] == sent.id && job["status"] != "failed"), "{outbox:?}");
    // Sealed it cannot be written; what is said is the cause and not the layers around it.
    message.privacy = Privacy::Auto;
    match client.send(&message).await {
        Err(ClientError::Refused { status: 502, reason, .. }) => {
            assert!(reason.contains("refused") && !reason.contains("error sending request"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    house.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn silence_pays_by_the_clock_of_the_house_and_a_decision_before_it_leaves_no_trace() {
    let mut house = TestHouse::new("mar.example", 1).reviewing(1_500);
    house.start().await;
    let (buyer, seller) = (house.join("ana-buys", 11).await, house.join("leo-sells", 12).await);
    house.topup(buyer.address(), 1_000).await;
    let mut ids = Ids::from_seed([5; 32]);
    let terms = json!({"deadline": "2020-01-01T00:00:00Z"});
    let silent = accepted_and_delivered(&house, &buyer, &seller, 100, terms.clone(), &mut ids).await;
    let decided = accepted_and_delivered(&house, &buyer, &seller, 100, terms, &mut ids).await;
    order(&buyer, &house.libro(), json!({"op": "release", "contract": decided})).await.expect("released");

    let contract = contract_in(&buyer, &silent, &["released"]).await;
    let last = contract["history"].as_array().and_then(|history| history.last()).cloned().expect("history");
    assert_eq!((&last["op"], &last["by"]), (&json!("expire"), &json!(house.libro())));
    assert_eq!(house.balances().await["leo-sells@mar.example"], 180);
    // The other contract's order has come by the same time, and whatever it met is nobody's mail.
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    assert_eq!(house.balances().await["leo-sells@mar.example"], 180);
    assert_eq!(house.mailbox("postmaster").await, Vec::<serde_json::Value>::new());
    assert_eq!(house.mailbox("libro").await, Vec::<serde_json::Value>::new());
    house.stop().await;
}
