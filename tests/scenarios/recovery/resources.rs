//! Recovery under faults of storage, alarms and clocks, and what it costs (`recovery.md` §7.9).

use super::*;
