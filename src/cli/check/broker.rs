//! The broker: is it there, which one, and does it let us in?

use std::time::Duration;

use tokio::time::timeout;

use super::report::Line;
use crate::{
    broker::{BrokerError, Connection, Endpoint, Kind, connect},
    cli::run::serve,
    config::{BrokerConfig, BrokerUrl},
};

/// For a greeting and a login, each; several addresses may be tried in it.
const LIMIT: Duration = Duration::from_secs(20);

pub(super) const BROKER: &str = "broker";
const LOGIN: &str = "login";

/// Tries every URL. The first that lets us in is the one for all further questions.
pub(super) async fn look(config: &BrokerConfig) -> (Vec<Line>, Option<Connection>) {
    let mut lines = Vec::new();
    let mut connection = None;
    for url in &config.urls {
        let (found, connected) = look_at(config, url).await;
        lines.extend(found);
        connection = connection.or(connected);
    }
    if connection.is_some() {
        // They are tried in turn: one that works is enough to start.
        lines = lines.into_iter().map(Line::softened).collect();
    }
    (lines, connection)
}

async fn look_at(config: &BrokerConfig, url: &BrokerUrl) -> (Vec<Line>, Option<Connection>) {
    let endpoint = match serve::endpoint(config, url) {
        Ok(endpoint) => endpoint,
        Err(failure) => {
            return (
                vec![Line::fail(BROKER, failure.message, "correct the URL: --url, AMQP_URL or [broker] url")],
                None,
            );
        }
    };
    let mut lines: Vec<Line> = endpoint
        .warnings()
        .into_iter()
        .map(|warning| Line::warn(BROKER, format!("{endpoint}: {warning}"), "correct the URL"))
        .collect();
    let greeted = within(connect::greeting(&endpoint)).await;
    match greeted {
        Ok(server) => lines.push(Line::ok(BROKER, format!("{endpoint}: {server}"))),
        Err(error) => {
            lines.push(Line::fail(BROKER, format!("{endpoint}: {error}"), hint(&error, &endpoint)));
            lines.push(Line::fail(
                LOGIN,
                "not tried: there is no broker to log in to",
                format!("first mend '{BROKER}'"),
            ));
            return (lines, None);
        }
    }
    let purpose = "check";
    match within(connect::connect(std::slice::from_ref(&endpoint), purpose)).await {
        Ok(connection) => {
            let (user, vhost) = (endpoint.user(), endpoint.vhost());
            lines.push(Line::ok(LOGIN, format!("user '{user}', vhost '{vhost}'")));
            (lines, Some(connection))
        }
        Err(error) => {
            lines.push(Line::fail(LOGIN, error.to_string(), hint(&error, &endpoint)));
            (lines, None)
        }
    }
}

async fn within<T>(question: impl Future<Output = Result<T, BrokerError>>) -> Result<T, BrokerError> {
    timeout(LIMIT, question)
        .await
        .unwrap_or_else(|_| Err(BrokerError::new(Kind::Timeout, format!("no answer within {LIMIT:?}"))))
}

fn hint(error: &BrokerError, endpoint: &Endpoint) -> String {
    let (user, vhost) = (endpoint.user(), endpoint.vhost());
    let said = error.to_string();
    match error.kind() {
        Kind::Refused if said.contains("has no access to the vhost") => {
            format!("rabbitmqctl set_permissions -p '{vhost}' '{user}' …, or name another vhost in the URL")
        }
        Kind::Refused if said.contains("the vhost") => {
            format!("rabbitmqctl add_vhost '{vhost}', or correct the part of the URL after the port")
        }
        Kind::Refused => {
            format!("correct the user or the password; rabbitmqctl authenticate_user '{user}' tries one")
        }
        Kind::Tls | Kind::Setup => "correct the certificates that the URL names, or its port".to_owned(),
        Kind::Timeout => "look at the broker's log: it is there, and does not answer".to_owned(),
        _ => "start the broker, or correct host and port: --url, AMQP_URL or [broker] url".to_owned(),
    }
}
