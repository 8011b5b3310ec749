//! A small disk of a test's own, which can be filled up.

use std::{
    fs::{self, File},
    io::{ErrorKind, Write},
    path::{Path, PathBuf},
    process::Command,
};

/// A tmpfs of a few MiB, unmounted when dropped.
pub struct SmallDisk {
    path: PathBuf,
}

/// Set in a process that may mount what it likes.
const MARK: &str = "TEST_MAY_MOUNT";

/// Runs the test of that name again, in a process with a mount namespace of its own, and says `false`;
/// in there it says `true`. So a test can mount file systems, and none is left behind.
///
/// Needs `unshare` and `mount` (util-linux), and root, or a kernel that lets users make namespaces.
pub fn may_mount(test: &str) -> bool {
    if std::env::var_os(MARK).is_some() {
        return true;
    }
    let mut command = Command::new("unshare");
    command.arg("--mount");
    if !rustix::process::geteuid().is_root() {
        command.arg("--map-root-user");
    }
    let status = command
        .arg("--")
        .arg(std::env::current_exe().expect("this test's path"))
        .args(["--exact", test, "--nocapture"])
        .env(MARK, "1")
        .status()
        .expect("unshare starts");
    assert!(
        status.success(),
        "{test}, in a mount namespace of its own (needs root or user namespaces): {status}"
    );
    false
}

impl SmallDisk {
    pub fn mount(path: &Path, kib: u32) -> Self {
        fs::create_dir_all(path).expect("a mount point");
        let size = format!("size={kib}k,mode=700");
        let status = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(path).status();
        assert!(status.expect("mount starts").success(), "mounting a tmpfs at {}", path.display());
        Self { path: path.to_owned() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Leaves not one page free.
    pub fn fill(&self) {
        let mut file = File::create(self.path("ballast")).expect("a file");
        loop {
            match file.write(&[0; 4096]) {
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::StorageFull => return,
                Err(e) => panic!("filling the disk: {e}"),
            }
        }
    }

    pub fn free(&self) {
        fs::remove_file(self.path("ballast")).expect("removed");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a worker may still be using it.
        let _ = Command::new("umount").arg("--lazy").arg(&self.path).status();
    }
}
