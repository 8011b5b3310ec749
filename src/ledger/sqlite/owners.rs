//! Owners and whether they are alive: each holds an OS lock on a file beside the ledger.
//!
//! The kernel drops the lock at any death of the process, so liveness is proven, not guessed from
//! age. A file is always locked before it is unlinked, and whoever has locked one makes sure that
//! its path still leads to it; so no two ever hold the same name.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, ErrorKind},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Component, Path, PathBuf},
    process,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use uuid::Uuid;

use super::files::beside;
use crate::ledger::LedgerError;

/// Tries to make a lock file of our own; another process may sweep the directory meanwhile.
const ENROLL_TRIES_MAX: u32 = 100;

/// The owners of one ledger: the directory of their lock files, and those of this process.
#[derive(Clone, Debug)]
pub(super) struct Owners {
    dir: PathBuf,
    own: Arc<Mutex<Vec<Weak<Held>>>>,
}

/// One owner's lock. Dropping it ends the owner and removes its file.
#[derive(Debug)]
pub(super) struct OwnerLock(#[expect(dead_code, reason = "held, not used")] Arc<Held>);

#[derive(Debug)]
struct Held {
    path: PathBuf,
    file: Mutex<File>,
}

impl Drop for Held {
    fn drop(&mut self) {
        // While the lock is still held. A file that stays behind is unlocked, and so is dead as well.
        let _ = fs::remove_file(&self.path);
    }
}

impl Owners {
    /// Beside the ledger: `<ledger>.owners`.
    pub(super) fn of(ledger: &Path) -> Self {
        Self { dir: beside(ledger, ".owners"), own: Arc::default() }
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Makes one owner known: its name, and the lock that keeps it alive.
    pub(super) fn enroll(&self) -> io::Result<(String, OwnerLock)> {
        for _ in 0..ENROLL_TRIES_MAX {
            let name = new_name();
            let path = self.dir.join(&name);
            if let Some(file) = self.lock_new(&path)? {
                let held = Arc::new(Held { path, file: Mutex::new(file) });
                let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
                own.retain(|held| held.strong_count() > 0);
                own.push(Arc::downgrade(&held));
                return Ok((name, OwnerLock(held)));
            }
        }
        Err(io::Error::other("other processes keep removing the lock file"))
    }

    /// Puts back the files of this process's owners that somebody has removed, such as a program that
    /// clears temporary directories: without it, other processes would take a live owner for dead.
    pub(super) fn restore(&self) -> io::Result<()> {
        let own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        for held in own.iter().filter_map(Weak::upgrade) {
            let mut file = held.file.lock().unwrap_or_else(PoisonError::into_inner);
            if !leads_to(&held.path, &file)?
                && let Some(new) = self.lock_new(&held.path)?
            {
                *file = new;
            }
        }
        Ok(())
    }

    /// Makes and locks a file at `path`; `None` if another is there, or others removed it meanwhile.
    fn lock_new(&self, path: &Path) -> io::Result<Option<File>> {
        match DirBuilder::new().mode(0o700).create(&self.dir) {
            Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(e),
            _ => {}
        }
        let file = match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
            Ok(file) => file,
            Err(e) if matches!(e.kind(), ErrorKind::AlreadyExists | ErrorKind::NotFound) => return Ok(None),
            Err(e) => return Err(e),
        };
        // Others hold it for the moment of a look only.
        file.lock()?;
        Ok(leads_to(path, &file)?.then_some(file))
    }

    /// Whether the owner of that name lives at this moment.
    ///
    /// # Errors
    ///
    /// If that cannot be told. It must then not be taken for dead.
    pub(super) fn is_alive(&self, name: &str) -> io::Result<bool> {
        let mut components = Path::new(name).components();
        if !matches!((components.next(), components.next()), (Some(Component::Normal(_)), None)) {
            return Ok(false);
        }
        let file = match File::open(self.dir.join(name)) {
            Ok(file) => file,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(false),
            Err(e) => return Err(e),
        };
        // Shared, so that two who look at the same time do not see each other.
        match file.try_lock_shared() {
            Ok(()) => Ok(false),
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(e)) => Err(e),
        }
    }

    /// Removes the files of dead owners. What cannot be removed stays: it does no harm.
    pub(super) fn sweep(&self) -> io::Result<()> {
        let entries = match fs::read_dir(&self.dir) {
            Ok(entries) => entries,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(e),
        };
        for entry in entries {
            let path = entry?.path();
            let Ok(file) = File::open(&path) else { continue };
            if file.try_lock().is_ok() && leads_to(&path, &file).unwrap_or(false) {
                let _ = fs::remove_file(&path);
            }
        }
        Ok(())
    }
}

/// For an owner that cannot be made, or be kept, known.
pub(super) fn lock_file(owners: &Owners, error: &io::Error) -> LedgerError {
    LedgerError::transient(format!(
        "cannot keep a lock file in {}: {error}: is it writable for this user?",
        owners.dir.display()
    ))
}

/// Whether the path still leads to the open file.
fn leads_to(path: &Path, file: &File) -> io::Result<bool> {
    let opened = file.metadata()?;
    match fs::metadata(path) {
        Ok(found) => Ok((found.dev(), found.ino()) == (opened.dev(), opened.ino())),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

/// `<host>-<process>-<random>`: the first two for people, the last makes it unique.
fn new_name() -> String {
    // Only a name for people: a system without this file does without the host.
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host: String =
        host.trim().chars().take(64).map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let host = if host.is_empty() { "host" } else { &host };
    let random = Uuid::now_v7().simple().to_string();
    format!("{host}-{}-{}", process::id(), &random[random.len() - 10..])
}
