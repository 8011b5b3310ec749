//! A file of SQL statements as a handler: run for each message with its parts as parameters.

use rusqlite::{
    CachedStatement, Connection,
    fallible_iterator::FallibleIterator,
    types::{ToSqlOutput, ValueRef},
};

use super::{
    SqliteLedger,
    effects::{Attempt, HandlerError, TransactionHandler},
    errors::{is_of_the_ledger, words},
    guard::{Guard, Mode},
    split::{Piece, split},
};
use crate::{
    ledger::LedgerError,
    message::{TraceContext, table_json},
};

/// The parameters that statements may name, and what each stands for.
const PARAMETERS: [(&str, Part); 11] = [
    (":message_id", Part::MessageId),
    (":key", Part::Key),
    (":body", Part::Body),
    (":routing_key", Part::RoutingKey),
    (":exchange", Part::Exchange),
    (":type", Part::Kind),
    (":headers", Part::Headers),
    (":traceparent", Part::TraceParent),
    (":tracestate", Part::TraceState),
    (":attempt", Part::Attempt),
    (":now_ms", Part::Now),
];

/// A part of a message, or of its run.
#[derive(Clone, Copy, Debug)]
enum Part {
    MessageId,
    Key,
    Body,
    RoutingKey,
    Exchange,
    Kind,
    Headers,
    TraceParent,
    TraceState,
    Attempt,
    Now,
}

/// Statements that are run in order for each message, all or none. Rows that they return are ignored.
///
/// Parameters: `:message_id`, `:key`, `:body` (TEXT if it is UTF-8, else BLOB), `:routing_key`,
/// `:exchange`, `:type`, `:headers` (a JSON object), `:traceparent`, `:tracestate`, `:attempt` (from 1) and `:now_ms`.
/// A property that the message does not have, or an invalid trace, is NULL.
#[derive(Clone, Debug)]
pub struct Script(Vec<Statement>);

#[derive(Clone, Debug)]
struct Statement {
    /// Where it stands: `statement 2 (line 5)`.
    place: String,
    sql: String,
    parameters: Vec<(usize, Part)>,
}

impl Script {
    /// Takes the statements in `text` and checks them against the ledger's database. Blocks.
    ///
    /// # Errors
    ///
    /// Fatal, with a sentence for each statement that is not allowed or not possible there, with its
    /// number and line; transient if the ledger cannot be read now.
    pub fn new(text: &str, ledger: &SqliteLedger) -> Result<Self, LedgerError> {
        let pieces = split(text);
        if pieces.is_empty() {
            return Err(LedgerError::fatal("there is no statement in it"));
        }
        ledger.with_guard(|connection, guard| {
            let (statements, problems): (Vec<_>, Vec<_>) = pieces
                .into_iter()
                .map(|piece| Statement::new(connection, guard, piece))
                .partition(Result::is_ok);
            if problems.is_empty() {
                return Ok(Self(statements.into_iter().flatten().collect()));
            }
            let problems: Vec<_> = problems.into_iter().filter_map(Result::err).collect();
            Err(LedgerError::fatal(problems.join("; ")))
        })
    }
}

impl SqliteLedger {
    /// Runs the statements of the user's schema in one transaction: tables, indexes, views and
    /// triggers of the user's own. Made to be repeated at each start, so it should say `IF NOT EXISTS`.
    /// Blocks.
    ///
    /// # Errors
    ///
    /// Fatal, with the statement's number and why; then nothing was changed. Transient if the ledger cannot
    /// be written now.
    pub fn set_up(&self, schema: &str) -> Result<(), LedgerError> {
        self.with_guard(|connection, guard| {
            connection.execute_batch("BEGIN IMMEDIATE").map_err(|e| self.error(&e))?;
            let mut number = 0;
            let (result, noticed) = guard.watch(Mode::Schema, None, || {
                let mut batch = rusqlite::Batch::new(connection, schema);
                loop {
                    number += 1;
                    let Some(mut statement) = batch.next()? else { return Ok(()) };
                    let mut rows = statement.raw_query();
                    while rows.next()?.is_some() {}
                }
            });
            result.and_then(|()| connection.execute_batch("COMMIT")).map_err(|error: rusqlite::Error| {
                if is_of_the_ledger(&error) {
                    return self.error(&error);
                }
                let said = noticed.denied.unwrap_or_else(|| words(&error));
                LedgerError::fatal(format!("statement {number}: {said}"))
            })
        })
    }
}

impl Statement {
    fn new(connection: &Connection, guard: &Guard, piece: Piece) -> Result<Self, String> {
        let place = format!("statement {} (line {})", piece.number, piece.line);
        // The one statement that no rule is asked about before it runs.
        if piece.sql.get(..6).is_some_and(|word| word.eq_ignore_ascii_case("VACUUM")) {
            return Err(format!("{place}: VACUUM is not possible inside a transaction"));
        }
        let (prepared, noticed) = guard.watch(Mode::Run, None, || connection.prepare(&piece.sql));
        let statement = match prepared {
            Ok(statement) => statement,
            Err(error) => {
                return Err(format!("{place}: {}", noticed.denied.unwrap_or_else(|| words(&error))));
            }
        };
        let mut parameters = Vec::new();
        for index in 1..=statement.parameter_count() {
            let name = statement.parameter_name(index).unwrap_or("?");
            let Some((_, part)) = PARAMETERS.iter().find(|(known, _)| *known == name) else {
                let known = PARAMETERS.map(|(known, _)| known).join(", ");
                return Err(format!("{place}: unknown parameter {name}: there are {known}"));
            };
            parameters.push((index, *part));
        }
        Ok(Self { place, sql: piece.sql, parameters })
    }

    fn run(&self, transaction: &Connection, attempt: &Attempt<'_>) -> rusqlite::Result<()> {
        let mut statement = transaction.prepare_cached(&self.sql)?;
        for (index, part) in &self.parameters {
            bind(&mut statement, *index, *part, attempt)?;
        }
        let mut rows = statement.raw_query();
        while rows.next()?.is_some() {}
        Ok(())
    }
}

impl TransactionHandler for Script {
    fn handle(&self, transaction: &Connection, attempt: &Attempt<'_>) -> Result<(), HandlerError> {
        for statement in &self.0 {
            let Err(error) = statement.run(transaction, attempt) else { continue };
            let place = &statement.place;
            // Somebody may have changed the schema since: then it is not the message's failure.
            if error.sqlite_error_code() == Some(rusqlite::ErrorCode::Unknown)
                && let Err(error) = transaction.prepare(&statement.sql)
            {
                return Err(HandlerError::CannotStart(format!("{place}: {}", words(&error))));
            }
            return Err(HandlerError::Sql { context: format!("{place}: "), error });
        }
        Ok(())
    }

    fn check(&self, database: &Connection) -> Result<(), String> {
        for statement in &self.0 {
            let prepared = database.prepare(&statement.sql);
            prepared.map_err(|error| format!("{}: {}", statement.place, words(&error)))?;
        }
        Ok(())
    }
}

fn bind(
    statement: &mut CachedStatement<'_>,
    index: usize,
    part: Part,
    attempt: &Attempt<'_>,
) -> rusqlite::Result<()> {
    let message = attempt.message;
    let properties = &message.properties;
    let (headers, trace);
    let text = match part {
        Part::Attempt => return statement.raw_bind_parameter(index, attempt.attempt),
        Part::Now => return statement.raw_bind_parameter(index, attempt.now),
        Part::Body if std::str::from_utf8(&message.body).is_err() => {
            return statement.raw_bind_parameter(index, &message.body[..]);
        }
        // As bytes of a TEXT: an empty slice is an empty text, not NULL.
        Part::Body => {
            return statement.raw_bind_parameter(index, ToSqlOutput::Borrowed(ValueRef::Text(&message.body)));
        }
        Part::MessageId => properties.message_id.as_deref(),
        Part::Kind => properties.kind.as_deref(),
        Part::Key => Some(attempt.key.as_str()),
        Part::RoutingKey => Some(message.routing_key.as_str()),
        Part::Exchange => Some(message.exchange.as_str()),
        Part::Headers => {
            headers = table_json(properties.headers.as_ref().unwrap_or(&Default::default())).to_string();
            Some(headers.as_str())
        }
        Part::TraceParent | Part::TraceState => {
            trace = TraceContext::of(properties);
            let trace = trace.as_ref();
            if matches!(part, Part::TraceParent) {
                trace.map(TraceContext::traceparent)
            } else {
                trace.and_then(TraceContext::tracestate)
            }
        }
    };
    statement.raw_bind_parameter(index, text)
}
