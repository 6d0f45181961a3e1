//! Recovery as connected and returning clients see it (`recovery.md` §7.7).

use super::*;

// wire 163: a flag that is older than a quarter of an hour says nothing any more.
#[test]
fn an_old_flag_is_not_shown() {
    let world = world().model(script![text_deltas(&["a"; 25]).gate("never"), text("b").gate("never")]);
    let tab = world.connect("S1");
    tab.send("hi");
    world.run();
    world.restart(Sockets::Closed);
    world.run_for(1_000);
    let early = world.connect("S2");
    assert!(early.recovering(), "{}", early.story());
    world.clock().skew(limits::RECOVERING_SHOWN_MS + 1);
    let late = world.socket("S3");
    assert!(late.of_type("cf_agent_chat_recovering").is_empty(), "{}", late.story());
}

fn kinds(frames: &[Value]) -> Vec<String> {
    let short = |kind: &str| kind.trim_start_matches("cf_agent_").to_owned();
    frames
        .iter()
        .filter_map(|frame| frame["type"].as_str().map(short))
        .filter(|kind| kind != "identity" && kind != "mcp_servers")
        .collect()
}

// recovery 86, W22, I19: two tabs, whose sockets were kept or lost, or one each.
#[test]
fn two_tabs_end_with_the_same_transcript() {
    for lost in [[false, false], [true, true], [false, true]] {
        for answer in ["the end", ""] {
            let (world, one) = begun(agent(), [text_deltas(&["more "; 12]).gate("g").text(answer)]);
            let two = world.connect("S2");
            world.restart(if lost == [true, true] { Sockets::Closed } else { Sockets::Kept });
            for (tab, lost) in [&one, &two].into_iter().zip(lost) {
                if lost {
                    world.disconnect(tab);
                    world.reconnect(tab);
                }
            }
            world.run();
            world.open_gate("g");
            world.run();
            assert_eq!((one.said(), two.said()), (world.said(), world.said()), "{lost:?}\n{}", two.story());
            let texts: Vec<Value> = parts(&world, 1).into_iter().filter(|part| part["type"] == "text").collect();
            assert_eq!(texts.len(), 2, "what was before and what came after: {texts:?}");
            assert!(!one.recovering() && !two.recovering());
            assert_at_rest(&world);
        }
    }
}

// recovery 87, 94, decision 36, I20: who comes while the turn waits is told so, and is shown what there is.
#[test]
fn who_comes_while_a_turn_waits_is_told_and_shown_what_there_is() {
    let world = World::new(agent()).model(script![text_deltas(&["word "; 25]).cut(), text("the end")]);
    let tab = world.connect("S1");
    let root = tab.send("hi");
    world.run_until(|world| !world.events_named("chat:recovery:scheduled").is_empty());
    world.settle();
    for sockets in [Sockets::Kept, Sockets::Closed] {
        let late = world.connect(if sockets == Sockets::Kept { "S2" } else { "S3" });
        // Who shows the request as running, from before, learns first that it is over.
        let frames = ["use_chat_response", "stream_pending", "chat_messages", "chat_recovering", "stream_pending"];
        assert_eq!(kinds(&late.frames()), frames, "{}", late.story());
        assert_eq!(late.responses(&root)[0]["outcome"], "recovering");
        let pending = late.of_type("cf_agent_stream_pending");
        assert!(pending.iter().all(|frame| frame["id"] == *root), "{pending:?}");
        assert_eq!(
            late.of_type("cf_agent_chat_recovering")[0],
            json!({ "type": "cf_agent_chat_recovering", "recovering": true, "id": root })
        );
        assert!(late.said()[1].starts_with("assistant: word word") && late.recovering(), "{:?}", late.said());
        world.restart(sockets);
    }
    let last = world.connect("S4");
    world.run();
    assert!(last.said()[1].ends_with("the end") && !last.recovering(), "{}", last.story());
    assert_eq!(last.said(), world.said());
    assert_at_rest(&world);
}

// recovery 94, D3, decision 36: the dead stream is not offered; its words are in the transcript before any attempt began.
#[test]
fn what_a_dead_stream_said_is_in_the_transcript_at_once() {
    let gates = Gates::default();
    let waits = gates.clone();
    let agent = agent().recovery_hook(move |_, _| {
        let waits = waits.clone();
        async move {
            waits.wait("hook").await;
            Ok(RecoveryDecision::default())
        }
    });
    // Also for who comes before the attempt is on disk, and nothing was read yet.
    for slow in [false, true] {
        let script = script![text_deltas(&["word "; 25]).gate("never"), text("the end")];
        let world = World::new(agent.clone()).with_gates(&gates).model(script);
        let world = if slow { world.slow_disk() } else { world };
        let root = world.connect("S1").send("hi");
        world.run();
        world.restart(Sockets::Closed);
        let late = world.connect("S2");
        world.settle();
        assert!(late.said()[1].starts_with("assistant: word word") && late.recovering(), "{slow}\n{}", late.story());
        assert!(late.of_type("cf_agent_stream_pending").iter().all(|frame| frame["id"] == *root));
        assert!(late.of_type("cf_agent_stream_resuming").is_empty() && late.chunks(&root).is_empty(), "{}", late.story());
        let shown = late.messages()[1]["id"].clone();
        world.gates().pass("hook", 1);
        world.run();
        assert_eq!((late.messages()[1]["id"].clone(), late.said()), (shown, world.said()), "{}", late.story());
        assert!(world.said()[1].ends_with("the end"));
        assert_at_rest(&world);
    }
}

// recovery 88, W23, decision 13: before the attempt has a stream nobody is told that nothing goes on.
#[test]
fn nobody_is_told_idle_before_the_stream_of_an_attempt() {
    let world = World::new(agent())
        .model(script![text_deltas(&["word "; 25]).gate("never"), text("").head_gate("head").text("the ").gate("g").text("end")]);
    world.connect("S1").send("hi");
    world.run();
    world.restart(Sockets::Closed);
    let late = world.connect("S2");
    world.run();
    assert_eq!(asked(&world), 2);
    late.probe();
    world.run();
    assert!(late.of_type("cf_agent_stream_resume_none").is_empty(), "{}", late.story());
    assert!(!late.of_type("cf_agent_stream_pending").is_empty());
    world.open_gate("head");
    world.run();
    assert!(!late.of_type("cf_agent_stream_resuming").is_empty(), "{}", late.story());
    world.open_gate("g");
    world.run();
    assert!(late.of_type("cf_agent_stream_resume_none").is_empty());
    assert_eq!(late.said(), world.said());
    assert_at_rest(&world);
}

// recovery 89, W22, I19: told of the stream and asking for it too, a tab applies it once.
#[test]
fn a_stream_that_is_offered_twice_is_applied_once() {
    let (world, tab) = begun(agent(), [text_deltas(&["more "; 12]).gate("g").text("the end")]);
    world.restart(Sockets::Closed);
    world.reconnect(&tab);
    world.run();
    for _ in 0..3 {
        tab.probe();
    }
    let request = texts(&world, "SELECT request_id FROM wk_turn").pop().unwrap();
    tab.ack(&request);
    world.run();
    world.open_gate("g");
    world.run();
    assert_eq!(tab.said(), world.said(), "{}", tab.story());
    assert_eq!(tab.said()[1].matches("more").count(), 12);
    assert_at_rest(&world);
}

// recovery 90, I19, W33: three thousand chunks after a recovery: read a page at a time, without gap or copy, then live.
#[test]
fn a_long_replay_is_read_in_pages_and_followed_live() {
    let (world, _tab) = begun(agent(), [text_deltas(&["w"; 3_000]).gate("g").text("!")]);
    die(&world);
    let request = texts(&world, "SELECT request_id FROM wk_turn").pop().unwrap();
    let before = world.meter().read;
    let late = world.connect("S2");
    let read = world.meter().read - before;
    assert!(read <= 3_000 / 10 + 60, "{read} rows");
    world.open_gate("g");
    world.run();
    let numbers: Vec<i64> = late.responses(&request).iter().filter_map(|frame| frame["seq"].as_i64()).collect();
    let replayed = numbers.iter().position(|seq| *seq >= 3_003).unwrap();
    assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "{:?}", &numbers[..10]);
    assert!(replayed >= 3_000 && numbers[0] == 0);
    assert_eq!(late.said(), world.said());
    assert_at_rest(&world);
}

// recovery 91, W24, I19: the transcript is there before the end is, and what is typed right then stays.
#[test]
fn a_message_sent_at_the_end_of_a_recovery_is_not_wiped() {
    let (world, tab) = begun(agent(), [text("the end"), text("second")]);
    world.restart(Sockets::Kept);
    tab.take_frames();
    world.run_until(|_| tab.turn_ends().iter().any(|end| end.outcome == "completed"));
    let seen = kinds(&tab.frames());
    let end = tab.frames().iter().rposition(|frame| frame["done"] == true && frame["outcome"] == "completed").unwrap();
    assert!(kinds(&tab.frames()[..end]).contains(&"chat_messages".into()), "{seen:?}");
    let transcript = tab.frames()[..end].iter().rposition(|frame| frame["type"] == "cf_agent_chat_messages").unwrap();
    assert!(tab.frames()[transcript]["messages"].to_string().contains("the end"));
    tab.send("and?");
    assert_eq!(tab.said().last().map(String::as_str), Some("user: and?"));
    world.run();
    assert_eq!(tab.said(), world.said());
    assert_eq!(world.said()[2..], ["user: and?", "assistant: second"]);
    assert_at_rest(&world);
}

// wire 164, recovery 86: who watched an attempt in the middle learns of its end, however many objects there were since, and however the
// turn ended.
#[test]
fn the_end_of_every_attempt_is_told_to_who_missed_it() {
    let model = ["a", "b", "c"].map(|word| text_deltas(&[word; 25]).gate(word));
    let (world, one) = begun(agent(), model);
    let two = world.connect("S2");
    world.restart(Sockets::Kept);
    world.run();
    let watched = two.of_type("cf_agent_use_chat_response").last().map(|frame| frame["id"].clone()).unwrap();
    let watched = watched.as_str().unwrap();
    assert!(two.watches() && two.terminals(watched).is_empty());
    world.disconnect(&two);
    for _ in 0..2 {
        world.restart(Sockets::Kept);
        world.run();
    }
    world.reconnect(&two);
    world.run();
    assert_eq!(two.terminals(watched).len(), 1, "{}", two.story());
    world.open_gate("c");
    world.run();
    assert_eq!((one.said(), two.said()), (world.said(), world.said()), "{}", two.story());
    assert_at_rest(&world);
}

// wire 164: an object that wakes with a bad ending to offer, and nothing to do, tells of the ends before that too.
#[test]
fn an_end_that_was_missed_is_told_where_another_is_offered() {
    let no = http_error(400, json!({ "error": { "message": "no", "type": "invalid_request_error" } }));
    let world = World::new(agent()).model(script![text("beginning").gate("g").text(" and end"), no]);
    let (one, two) = (world.connect("S1"), world.connect("S2"));
    let watched = one.send("hi");
    world.run();
    assert!(two.watches());
    world.disconnect(&two);
    world.open_gate("g");
    world.run();
    one.send("again");
    world.run();
    world.restart(Sockets::Kept);
    world.reconnect(&two);
    world.run();
    assert_eq!((two.terminals(&watched).len(), two.watches()), (1, false), "{}", two.story());
    assert_eq!((one.said(), two.said()), (world.said(), world.said()));
    assert_at_rest(&world);
}

// wire 164: what was cleared away has ended too, and who was away learns of it from a later object, where its probe finds something else.
#[test]
fn an_end_before_a_clear_is_told_after_a_death() {
    let world = World::new(agent()).model(script![text("beginning").gate("g"), text("fine").gate("h")]);
    let (one, two) = (world.connect("S1"), world.connect("S2"));
    let watched = one.send("hi");
    world.run();
    assert!(two.watches());
    world.disconnect(&two);
    one.clear();
    world.run();
    world.restart(Sockets::Kept);
    world.reconnect(&two);
    // Before it has asked what is going on, something is.
    one.send("again");
    world.run();
    assert_eq!(two.terminals(&watched).len(), 1, "{}", two.story());
    world.open_gate("h");
    world.run();
    assert_eq!((one.said(), two.said()), (world.said(), world.said()), "{}", two.story());
    assert_at_rest(&world);
}

/// Of each request a client saw frames of: whether they are those of a continuation, and both if they disagree.
fn kinds_of_requests(client: &Client) -> Vec<Vec<bool>> {
    let mut kinds: Vec<(String, Vec<bool>)> = Vec::new();
    for frame in client.of_type("cf_agent_use_chat_response") {
        let (id, kind) = (frame["id"].as_str().unwrap().to_owned(), frame["continuation"] == true);
        match kinds.iter_mut().find(|(known, _)| *known == id) {
            Some((_, kinds)) if kinds.contains(&kind) => {}
            Some((_, kinds)) => kinds.push(kind),
            None => kinds.push((id, vec![kind])),
        }
    }
    kinds.into_iter().map(|(_, kinds)| kinds).collect()
}

// wire 119: an attempt that went on with a message ends as it began, also where another object tells of it, or gives the turn up
#[test]
fn the_end_of_an_attempt_that_went_on_says_so() {
    for (deaths, expected) in [(2, vec![[false], [true], [true]]), (5, vec![[false], [true], [true], [true], [true]])] {
        let (world, _tab) = begun(agent(), ["b", "c", "d", "e"].map(|gate| text("more ").gate(gate)));
        let two = world.connect("S2");
        for _ in 0..deaths {
            world.restart(Sockets::Kept);
            world.run();
        }
        ["b", "c", "d", "e"].iter().for_each(|gate| world.open_gate(gate));
        world.run();
        assert_eq!(kinds_of_requests(&two), expected, "{deaths} deaths: {}", two.story());
        assert_eq!(turns(&world), [if deaths == 5 { "failed interrupted_attempts_exceeded" } else { "completed -" }]);
        assert_at_rest(&world);
    }
}

// wire 119: nor does the request that was asked end as a continuation because attempts after it were some, also once all is over
#[test]
fn the_end_of_what_was_asked_is_of_its_own_kind() {
    let no = http_error(400, json!({ "error": { "message": "no", "type": "invalid_request_error" } }));
    let (world, tab) = begun(agent(), [text("the end"), no]);
    let two = world.connect("S2");
    let asked = two.of_type("cf_agent_use_chat_response")[0]["id"].as_str().unwrap().to_owned();
    world.disconnect(&two);
    world.restart(Sockets::Kept);
    world.run();
    tab.send("and this?");
    world.run();
    world.restart(Sockets::Kept);
    world.reconnect(&two);
    world.run();
    let ends: Vec<(bool, bool)> = two
        .of_type("cf_agent_use_chat_response")
        .iter()
        .filter(|frame| frame["outcome"] == "recovering" || frame["outcome"] == "completed")
        .map(|frame| (frame["id"] == *asked, frame["continuation"] == true))
        .collect();
    assert_eq!(ends, [(true, false), (false, true)], "{}", two.story());
    assert_at_rest(&world);
}

// wire 164: an end that a late ACK has asked for is not told again by the probe that finds something else, nor one that was seen live
#[test]
fn an_end_is_told_once_over_one_connection() {
    let world = World::new(agent()).model(script![text("one"), text("two"), text("three").gate("g")]);
    let one = world.connect("S1");
    let first = one.send("first");
    world.run();
    let late = world.socket("S2");
    late.ack(&first);
    world.run();
    let second = one.send("second");
    world.run();
    one.send("third");
    world.run();
    late.probe();
    world.run();
    assert_eq!([&first, &second].map(|id| late.terminals(id).len()), [1, 1], "{}", late.story());
    world.open_gate("g");
    world.run();
    assert_at_rest(&world);
}

// wire 119: a clear ends a continuation as one.
#[test]
fn a_clear_ends_what_goes_on_as_a_continuation() {
    let world = world().model(script![text_deltas(&["a"; 25]).gate("never"), text("b").gate("never")]);
    let tab = world.connect("S1");
    tab.send("hi");
    world.run();
    world.restart(Sockets::Kept);
    world.run_until(|world| asked(world) == 2);
    world.settle();
    tab.clear();
    world.run();
    let ends =
        tab.of_type("cf_agent_use_chat_response").into_iter().filter(|frame| frame["done"] == true && frame["outcome"] == "aborted");
    assert_eq!(ends.map(|frame| frame["continuation"].clone()).collect::<Vec<_>>(), [json!(true)], "{}", tab.story());
    assert_at_rest(&world);
}
