//! One worker process: its state machine, its owner in the ledger, its session and its running handlers.

use std::{collections::BTreeMap, sync::Arc};

use ackonce::{
    ledger::{Owner, sqlite::SqliteEffects},
    message::SessionId,
    worker::core::{Core, GroupId, Run},
};

/// Which process: the place of a worker, and how often it has been started there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pid {
    pub worker: usize,
    pub start: u32,
}

impl std::fmt::Display for Pid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "w{}.{}", self.worker, self.start)
    }
}

pub struct Process {
    pub pid: Pid,
    pub core: Core,
    pub owner: Owner,
    /// Its lock is gone, although it lives: others take it for dead.
    pub is_zombie: bool,
    pub session: Option<SessionId>,
    /// Groups that outlived their session, when the last one ended.
    pub carried: usize,
    pub is_draining: bool,
    /// The drain deadline has passed: handlers are told to stop.
    pub is_stopping: bool,
    pub runs: BTreeMap<GroupId, Run>,
    /// Keys whose claims the ledger has called lost, in an answer that is on its way.
    pub lost: Vec<String>,
    /// Handles inside the ledger's transaction, if the ledger is SQLite.
    pub effects: Option<SqliteEffects>,
}

impl Process {
    pub fn new(pid: Pid, core: Core, owner: Owner, effects: Option<SqliteEffects>) -> Self {
        Self {
            pid,
            core,
            owner,
            is_zombie: false,
            session: None,
            carried: 0,
            is_draining: false,
            is_stopping: false,
            runs: BTreeMap::new(),
            lost: Vec::new(),
            effects,
        }
    }

    pub fn owner_name(&self) -> Arc<str> {
        self.owner.shared_name()
    }

    /// Its lock is released, and it does not notice.
    pub fn lose_lock(&mut self) {
        self.is_zombie = true;
        self.owner = Owner::new(self.owner.shared_name(), ());
    }
}
