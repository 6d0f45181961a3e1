//! Weaknesses that systems like this one had, put back one at a time: `npm run mutants` shows that the tests notice each
//! (`recovery.md` §5). Without the feature `mutants`, which no deployment has, none of this is compiled.

/// Every weakness that can be put back, and what it is.
#[cfg(feature = "mutants")]
const LIST: &[(&str, &str)] = &[
    ("W1", "a little progress before each death resets every bound: the model is called for ever"),
    ("W2", "what counts deaths is in memory, and dies with the object"),
    ("W3", "a burst of wakes is an attempt each"),
    ("W4", "a turn is given up by its age"),
    ("W5", "progress goes down when logs are folded away"),
    ("W6", "the row of an interrupted attempt is gone before the turn goes on"),
    ("W7", "a server tool that ran when its object died is waited for"),
    ("W8", "a turn that waits for a person spends attempts"),
    ("W9", "what a tool did is dropped where the application drops the rest"),
    ("W11", "who was away is never shown why a turn was given up"),
    ("W12", "the end of an interrupted request is told to nobody"),
    ("W13", "a message that was accepted is in no row until its turn runs"),
    ("W14", "each attempt writes a message of its own"),
    ("W15", "a continuation begins a second message beside the first"),
    ("W16", "a stream without content counts as an answer"),
    ("W17", "a submission is not told the end of its recovered turn"),
    ("W19", "the hook after a recovered turn is not called"),
    ("W20", "a request ends in the model's own words"),
    ("W21", "a batch goes on before its last answer"),
    ("W22", "a replay is sent twice"),
    ("W23", "a probe before the first chunk is told that nothing is going on"),
    ("W24", "the end of a request is sent before the transcript"),
    ("W26", "a closed tab stops the turn"),
    ("W27", "the alarm beats on when nothing is under way"),
    ("W28", "logs of turns that ended are kept"),
    ("W29", "a row for every chunk"),
    ("W30", "a hook that fails with its object is started again for ever"),
    ("W32", "the start of an object reads the transcript"),
    ("W34", "a message in one row, however large"),
    ("W35", "a flag in memory keeps a turn from being taken up again"),
    ("W36", "an attempt is counted once it was classified"),
    ("W38", "a turn ends, and its attempt stays open"),
    ("W39", "a turn of any age goes on by itself"),
    ("W41", "an alarm that finds work under way arms no successor"),
    ("W42", "a call of a turn that was given up stays open"),
    ("N1", "counters are forgotten an hour after the last attempt"),
    ("N2", "an outage counts as time without progress"),
    ("N3", "deaths add up over any number of finished steps"),
    ("N4", "a hook of recovery may take for ever"),
    ("N5", "a hook that returned is called again"),
    ("N6", "a step commits in pieces"),
    ("N7", "a hundred deltas may be lost"),
    ("N8", "a large result of a tool is in no row"),
    ("N9", "a turn whose message is not the last is left behind"),
    ("N10", "a tool that cannot be taken back is called again without asking"),
    ("N11", "a tool starts before its row is there"),
    ("N12", "a complete answer is continued"),
    ("N13", "while the clock is behind, every attempt belongs to a burst"),
];

/// Whether this weakness is put back, by the environment.
#[cfg(feature = "mutants")]
pub(crate) fn is(name: &str) -> bool {
    debug_assert!(LIST.iter().any(|(known, _)| *known == name), "{name} is not in the list");
    static ACTIVE: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    ACTIVE.get_or_init(|| std::env::var("WAKEFUL_MUTANT").ok()).as_deref() == Some(name)
}

/// Whether this weakness is put back.
macro_rules! mutant {
    ($name:ident) => {{
        #[cfg(feature = "mutants")]
        let put_back = crate::mutants::is(stringify!($name));
        #[cfg(not(feature = "mutants"))]
        let put_back = false;
        put_back
    }};
}
