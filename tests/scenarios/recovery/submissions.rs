//! Recovery of submissions (`recovery.md` §7.8).

use super::*;
