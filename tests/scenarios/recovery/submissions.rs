//! Recovery of submissions (`recovery.md` §7.8).

use super::*;

/// Submits one question under its own text as id, or under a key.
fn submit(world: &World<Custom>, question: &'static str, key: Option<&str>) -> Result<SubmissionInspection> {
    let handle = world.handle();
    let id = key.is_none().then(|| question.to_owned());
    let options = SubmitOptions { submission_id: id, idempotency_key: key.map(str::to_owned), ..SubmitOptions::default() };
    let message = UiMessage::user(format!("m-{question}"), question);
    Ok(world.block_on(async move { handle.submit_messages(vec![message], options).await })?.submission)
}

fn statuses(world: &World<Custom>) -> Vec<String> {
    texts(world, "SELECT status || coalesce(' ' || error, '') FROM wk_submission ORDER BY seq")
}

// recovery 102: every step after an acceptance; with recovery, what was begun is finished.
#[test]
fn a_submission_is_answered_once_whenever_the_object_dies() {
    let begin = || {
        let world = World::new(agent()).model_fn(|request| match request.roles().last() {
            Some(&"user") if request.last_user().starts_with("Continue exactly") => text("end"),
            _ => text_deltas(&["so "; 12]).text("end"),
        });
        submit(&world, "A", None).unwrap();
        submit(&world, "B", None).unwrap();
        world
    };
    let quiet = begin();
    let steps = std::iter::from_fn(|| quiet.step().then_some(())).count();
    assert!(steps > 10, "{steps}");
    for at in 0..=steps {
        let world = begin();
        for _ in 0..at {
            world.step();
        }
        die(&world);
        assert_eq!(statuses(&world), ["completed", "completed"], "{at}");
        let said = world.said();
        let roles: Vec<&str> = said.iter().filter_map(|line| line.split(": ").next()).collect();
        assert_eq!(roles, ["user", "assistant", "user", "assistant"], "{at}: {said:?}");
        assert!(said[1].ends_with("end") && said[3].ends_with("end"), "{at}: {said:?}");
        assert_at_rest(&world);
    }
}

// recovery 102: every statement of an acceptance fails once, and the object with it.
#[test]
fn a_submission_that_was_not_accepted_is_not_there() {
    for n in 1.. {
        let world = World::new(agent()).model_fn(|_| text("answer"));
        submit(&world, "A", None).unwrap();
        world.db().fail(FaultAt::Statement(n), RESET);
        let accepted = submit(&world, "B", None).is_ok();
        let struck = world.db().pending_faults() == 0;
        die(&world);
        if struck {
            assert!(!accepted, "statement {n}");
            assert_eq!(statuses(&world), ["completed"], "statement {n}");
            submit(&world, "B", None).unwrap();
            world.run();
        }
        assert_eq!((statuses(&world), world.said().len()), (vec!["completed".into(); 2], 4), "statement {n}");
        assert_at_rest(&world);
        if !struck {
            assert!(n > 3, "{n} statements");
            return;
        }
    }
}

// recovery 103: the same key before and after a death, whatever became of it meanwhile.
#[test]
fn a_key_is_one_run_across_a_death() {
    let world = World::new(agent()).model(script![text_deltas(&["word "; 25]).gate("never"), text("the end")]);
    let first = submit(&world, "A", Some("today")).unwrap();
    world.run();
    world.restart(Sockets::Closed);
    let again = submit(&world, "A", Some("today")).unwrap();
    world.run();
    let later = submit(&world, "A", Some("today")).unwrap();
    assert_eq!((&again.submission_id, &later.submission_id), (&first.submission_id, &first.submission_id));
    assert_eq!((later.status, asked(&world), world.said().len()), (SubmissionStatus::Completed, 2, 2));
    assert_at_rest(&world);
}

// recovery 104, I2: answer, status and the message it names are one commit, so that a death finds all of it or none.
#[test]
fn the_status_of_an_answered_submission_is_there_with_its_answer() {
    let world = World::new(agent()).model(script![text("answer")]);
    submit(&world, "A", None).unwrap();
    let at = world.clock().now();
    world.run_until(|world| rows(world, "wk_turn WHERE state = 'completed'") == 1);
    die(&world);
    let answer = world.get_messages()[1]["id"].clone();
    let row = world.db().query("SELECT status, message_id, completed_at, error FROM wk_submission").pop().unwrap();
    assert_eq!(json!(row), json!({ "status": "completed", "message_id": answer, "completed_at": at.0, "error": null }));
    assert_eq!((asked(&world), world.said()), (1, vec!["user: A".into(), "assistant: answer".into()]));
    assert_at_rest(&world);
}
