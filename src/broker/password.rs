//! A password that can be exchanged while it is in use.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Shared by its clones: a change is seen by every endpoint that has it, at its next login. Neither `Debug`
/// nor `Display` shows it.
#[derive(Clone)]
pub struct Password(Arc<Mutex<String>>);

impl Password {
    pub fn new(text: impl Into<String>) -> Self {
        Self(Arc::new(Mutex::new(text.into())))
    }

    /// Whether that is another one than before.
    pub fn replace(&self, text: &str) -> bool {
        let mut current = self.lock();
        let other = *current != text;
        if other {
            text.clone_into(&mut current);
        }
        other
    }

    pub(super) fn text(&self) -> String {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Into<String>> From<T> for Password {
    fn from(text: T) -> Self {
        Self::new(text)
    }
}

impl PartialEq for Password {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

impl Eq for Password {}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::Endpoint;

    #[test]
    fn a_new_password_is_that_of_every_endpoint_which_shares_it() {
        let password = Password::new("old");
        let endpoint = |url| Endpoint::parse(url).unwrap().with_password(password.clone());
        let (first, second) = (endpoint("amqp://u@one"), endpoint("amqp://u@two").clone());
        assert!(password.replace("new") && !password.replace("new"));
        for endpoint in [first, second] {
            assert_eq!(endpoint.to_lapin().authority.userinfo.password, "new");
        }
        assert_eq!(format!("{password:?}"), "***");
    }
}
