//! Every script of `scripts` with a death at every point, of every kind; then with two deaths (recovery §6.8).
//!
//! What must hold is checked after every commit and at rest (`rows`); here is what only the outside knows: how often tools were
//! started, what was shown and is lost, how often the model was asked, which hooks ran.
//!
//! `WAKEFUL_SCRIPT=key cargo test --profile seeds --test sim crash` takes the scripts with this in their names, and every death of each.

use wakeful::testkit::{Death, KillPoint, Snapshot};

use crate::{
    Pace, is_known, on_all_cores,
    rows::{Watcher, at_rest},
    scripts::{SCRIPTS, Script, Stage, staged, waiting},
    thorough, words_of,
};

/// Where an object dies.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
    /// Before the n-th event since the death before.
    Between(usize),
    /// At the n-th such point since the death before.
    At(KillPoint, u32),
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Kill {
    place: Place,
    death: Death,
}

/// One run of a script.
#[derive(Clone, Debug)]
struct Run {
    script: usize,
    kills: Vec<Kill>,
    /// Whether commits reach the disk as late as they can.
    slow_disk: bool,
    /// Whether clients come back only when nothing is left to happen without them.
    late: bool,
}

/// What a run came to.
struct Ran {
    broken: Vec<String>,
    /// Events until rest, and points reached.
    events: usize,
    points: Vec<(KillPoint, u32)>,
    /// Whether every death found its place.
    died: bool,
    left: (Snapshot, String),
}

fn reached(stage: &Stage) -> Vec<(KillPoint, u32)> {
    KillPoint::ALL.into_iter().map(|point| (point, stage.world.reached(point))).collect()
}

fn reconnect(stage: &Stage) -> bool {
    let mut any = false;
    for tab in [&stage.one, &stage.two] {
        if tab.conn().is_none() {
            stage.world.reconnect(tab);
            any = true;
        }
    }
    any
}

/// How many deltas of a long answer are in these lines.
fn words(lines: &[String]) -> usize {
    lines.iter().map(|line| line.matches("word ").count()).sum()
}

/// Plays a script to its end. The events it took, and whether every death found its place.
fn play(stage: &Stage, script: &Script, run: &Run, shown: &mut usize) -> (usize, bool) {
    let world = &stage.world;
    let mut cues = script.cues.iter().peekable();
    let mut kills = run.kills.iter();
    let mut next = kills.next();
    let arm = |kill: Option<&Kill>| {
        if let Some(Kill { place: Place::At(point, nth), death }) = kill {
            world.die_at(*point, *nth, *death);
        }
    };
    arm(next);
    let (mut events, mut since, mut deaths) = (0, 0, world.deaths());
    loop {
        while let Some(cue) = cues.next_if(|cue| (cue.when)(stage)) {
            (cue.then)(stage);
        }
        if let Some(kill) = next.filter(|kill| kill.place == Place::Between(since)) {
            world.die(kill.death);
        }
        let struck = next.is_some_and(|kill| {
            matches!(kill.place, Place::At(..)) && world.deaths_ahead() == 0 || kill.place == Place::Between(since)
        });
        let half_said = next.is_some_and(|kill| struck && kill.death == Death::HalfDeath && matches!(kill.place, Place::At(..)));
        if struck {
            next = kills.next();
            since = 0;
            arm(next);
        }
        if world.deaths() != deaths {
            deaths = world.deaths();
            *shown = (*shown).max(words(&stage.one.said()));
            if half_said {
                // A panic in the middle of a step takes with it what the step had to say, and the sockets it was to be said to stay:
                // nobody can know. Their pages have to be loaded anew.
                [&stage.one, &stage.two].into_iter().for_each(|tab| world.disconnect(tab));
            }
            if !run.late || half_said {
                reconnect(stage);
            }
        }
        if !world.tick() && !reconnect(stage) {
            break;
        }
        events += 1;
        since += usize::from(!struck);
    }
    (events, next.is_none())
}

/// Lets everybody come back, answers what is open, and asks a last question.
fn settle(stage: &Stage, script: &Script) {
    let world = &stage.world;
    world.spare();
    reconnect(stage);
    world.run();
    for _ in 0..4 {
        for call in waiting(&stage.one) {
            stage.answer(&stage.one, &call, script.allows);
        }
        world.run();
    }
    stage.two.send("later");
    world.run();
    world.bury();
}

/// `reload` also loads the object anew after every commit.
fn live(run: &Run, reload: bool) -> Ran {
    let script = &SCRIPTS[run.script];
    let lossy = run.slow_disk || run.kills.iter().any(|kill| kill.death == Death::Memory);
    let stage = staged(script, run.slow_disk, lossy);
    let watcher = Watcher::of(&stage.world, reload);
    let before = reached(&stage);
    let mut shown = 0;
    let (events, died) = play(&stage, script, run, &mut shown);
    let points = reached(&stage).into_iter().zip(before).map(|((point, now), (_, before))| (point, now - before)).collect();
    let mut ran = Ran { broken: Vec::new(), events, points, died, left: (Snapshot::default(), String::new()) };
    if !died {
        return ran;
    }
    let deaths = stage.world.deaths() as usize;
    settle(&stage, script);
    let mut broken = watcher.broken();
    broken.extend(at_rest(&stage.world));
    broken.extend(stage.ledger.broken());
    broken.extend((script.check)(&stage));
    let said = stage.world.said();
    if said.last().map(String::as_str) != Some("assistant: fine") {
        broken.push(format!("I6: the conversation does not go on: {said:?}"));
    }
    let kept = words(&said);
    if script.keeps_words && kept + 9 < shown {
        broken.push(format!("I8: {shown} deltas were shown and {kept} kept: more than nine are lost"));
    }
    // Each death repeats at most the model call that it hit; a zombie may make one more before it learns that it is one.
    let zombies = run.kills.iter().filter(|kill| kill.death == Death::Zombie).count();
    let (asked, most) = (stage.world.provider_requests().len(), script.calls + 1 + deaths + zombies);
    if asked > most {
        broken.push(format!("I10: the model was asked {asked} times, {most} at most after {deaths} deaths"));
    }
    for message in stage.world.get_messages().iter().filter(|m| m["role"] == "assistant") {
        if !stage.ledger.hook_ran_for(&message["id"]) {
            broken.push(format!("I22: no response hook ran for {}", message["id"]));
        }
    }
    for row in stage.world.db().query("SELECT id, attempt FROM wk_turn") {
        let asked = row["id"].as_str().and_then(|id| stage.ledger.asked.borrow().get(id).copied()).unwrap_or(0);
        if row["attempt"].as_u64().is_some_and(|attempts| attempts < 1 + u64::from(asked)) && asked > 0 {
            broken.push(format!("I11: {asked} attempts were begun and {} counted", row["attempt"]));
        }
    }
    for tab in [&stage.one, &stage.two] {
        if tab.recovering() {
            broken.push(format!("I20: {} shows that an answer is being recovered", tab.label()));
        }
    }
    broken.retain(|line| !is_known(script.name, line));
    if !broken.is_empty() {
        broken.push(stage.world.story());
    }
    ran.broken = broken;
    ran.left = (stage.world.db().snapshot(), format!("{}\n{}", stage.one.story(), stage.two.story()));
    ran
}

/// What is wrong with a run, or nothing; `None` if a death found no place.
fn judged(run: &Run, twice: bool) -> Option<Vec<String>> {
    let name = SCRIPTS[run.script].name;
    let ran = match std::panic::catch_unwind(|| live(run, twice)) {
        Ok(ran) => ran,
        Err(panic) => return Some(vec![format!("{name}: {run:?}\n{}", words_of(panic.as_ref()))]),
    };
    if !ran.died {
        return None;
    }
    if !ran.broken.is_empty() {
        return Some(vec![format!("{name}: {run:?}\n{}", ran.broken.join("\n"))]);
    }
    if twice && live(run, false).left != ran.left {
        return Some(vec![format!("{name}: {run:?}\ntwo runs differ")]);
    }
    Some(Vec::new())
}

fn wanted() -> Option<String> {
    std::env::var("WAKEFUL_SCRIPT").ok()
}

/// The scripts that are played.
fn scripts() -> impl Iterator<Item = usize> {
    let wanted = wanted().unwrap_or_default();
    (0..SCRIPTS.len()).filter(move |script| SCRIPTS[*script].name.contains(&wanted))
}

/// Every place at which a script can die, found by playing it undisturbed.
fn places(script: usize, slow_disk: bool) -> Vec<Place> {
    let ran = live(&Run { script, kills: Vec::new(), slow_disk, late: false }, true);
    assert!(ran.broken.is_empty(), "{}, undisturbed: {}", SCRIPTS[script].name, ran.broken.join("\n"));
    let inside = ran.points.iter().flat_map(|(point, n)| (1..=*n).map(|nth| Place::At(*point, nth)));
    (0..ran.events).map(Place::Between).chain(inside).collect()
}

/// Lives all of these runs; a report of those that fail, the first of each script in full.
fn all(runs: &[Run], least: u64, what: &str) {
    let pace = Pace::new();
    let failed = on_all_cores(runs, |run| {
        let often = pace.count().is_multiple_of(16);
        if pace.is_time_to_tell() {
            println!("{what}: {} of {}", pace.said(), runs.len());
        }
        judged(run, often).unwrap_or_default()
    });
    let lived = pace.done();
    println!("{what}: {} scripts, {}", scripts().count(), pace.said());
    // One of a kind in full; of the others what fails.
    let kind =
        |text: &str| text.lines().take(2).map(|line| line.split([':', '{']).next().unwrap_or_default().to_owned()).collect::<Vec<_>>();
    let mut kinds = Vec::new();
    let report = failed.iter().map(|text| {
        let first = !kinds.contains(&kind(text));
        kinds.push(kind(text));
        if first { text.clone() } else { text.lines().take(2).collect::<Vec<_>>().join(" ") }
    });
    let report: Vec<String> = report.collect();
    assert!(failed.is_empty(), "{} of {lived} runs fail\n{}", failed.len(), report.join("\n"));
    assert!(lived >= least, "{lived} runs of {least}");
}

// recovery §6.8, every single crash; D1–D24; I1–I14, I18–I23, I27
#[test]
fn a_death_at_any_point_of_any_script_leaves_a_conversation_that_goes_on() {
    let mut runs = Vec::new();
    for script in scripts() {
        for slow_disk in [false, true] {
            for (n, place) in places(script, slow_disk).into_iter().enumerate() {
                for death in Death::ALL {
                    // What a slow disk changes is what is lost, and what is held back.
                    if !slow_disk || matches!(death, Death::Memory | Death::Hard) {
                        runs.push(Run { script, kills: vec![Kill { place, death }], slow_disk, late: n % 2 == 1 });
                    }
                }
            }
        }
    }
    all(&sample(runs), 5 * scripts().count() as u64, "single deaths");
}

/// Scripts short enough to die twice everywhere.
const SHORT: usize = 30;

// recovery §6.8, all pairs of crashes
#[test]
fn a_second_death_at_any_point_after_the_first_leaves_it_too() {
    let mut runs = Vec::new();
    for script in scripts() {
        let undisturbed = live(&Run { script, kills: Vec::new(), slow_disk: false, late: false }, false);
        if undisturbed.events > SHORT {
            continue;
        }
        for first in 0..undisturbed.events {
            // A run is longer for a death; where it is not, the second finds no place, and the run says nothing.
            for second in 0..undisturbed.events + 10 {
                let death = |n: usize| [Death::Hard, Death::Hard, Death::Hard, Death::Memory, Death::HalfDeath, Death::Zombie][n % 6];
                let kills = [(first, death(first + second)), (second, death(second / 6))];
                let kills = kills.map(|(n, death)| Kill { place: Place::Between(n), death }).to_vec();
                runs.push(Run { script, kills, slow_disk: false, late: (first + second) % 2 == 1 });
            }
        }
    }
    all(&sample(runs), if wanted().is_some() { 0 } else { 50 }, "pairs of deaths");
}

/// All of them, or as many as a plain test run has time for.
fn sample(runs: Vec<Run>) -> Vec<Run> {
    if thorough() || wanted().is_some() { runs } else { runs.into_iter().step_by(97).collect() }
}
