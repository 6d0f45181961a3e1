//! Recovery as connected and returning clients see it (`recovery.md` §7.7).

use super::*;

// wire 163: a flag that is older than a quarter of an hour says nothing any more.
#[test]
fn an_old_flag_is_not_shown() {
    let world = recovering().model(script![text_deltas(&["a"; 25]).gate("never"), text("b").gate("never")]);
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
