//! Recovery rules without a row of their own: ambiguous effects, rows that contradict each other, repair of the history, stashes, ages.

use super::*;
