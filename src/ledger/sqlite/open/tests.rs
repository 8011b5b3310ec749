use super::*;

/// K25, K20: what acks depend on, asked of the writer's own connection.
#[test]
fn the_writer_has_every_option_that_it_relies_on() {
    let dir = tempfile::tempdir().unwrap();
    let options = SqliteOptions { log_bytes_max: 12_345, pages_max: Some(678), ..SqliteOptions::default() };
    let (connection, _) = open(&dir.path().join("ackonce.db"), &options).unwrap();
    for (pragma, expected) in [
        ("synchronous", 2),
        ("fullfsync", 1),
        ("foreign_keys", 1),
        ("wal_autocheckpoint", 1000),
        ("journal_size_limit", 12_345),
        ("max_page_count", 678),
        ("mmap_size", 0),
        ("temp_store", 2),
        ("cell_size_check", 1),
        ("application_id", APPLICATION_ID),
        ("user_version", VERSION),
    ] {
        let value: i64 = connection.pragma_query_value(None, pragma, |row| row.get(0)).unwrap();
        assert_eq!(value, expected, "{pragma}");
    }
    for (pragma, expected) in [("journal_mode", "wal"), ("locking_mode", "normal"), ("encoding", "UTF-8")] {
        let value: String = connection.pragma_query_value(None, pragma, |row| row.get(0)).unwrap();
        assert_eq!(value, expected, "{pragma}");
    }
}

/// Readable DDL is part of the interface: whoever opens the file finds every column explained.
#[test]
fn every_table_is_strict_and_every_column_has_a_comment() {
    for table in ["scopes", "owners", "messages"] {
        let (_, rest) = migrate::SCHEMA.split_once(&format!("CREATE TABLE {table} (\n")).unwrap();
        let (columns, end) = rest.split_once("\n)").unwrap();
        assert!(end.starts_with(" STRICT;"), "{table} is STRICT");
        let mut explained = true;
        for line in columns.lines() {
            let begins_column = line.starts_with("    ") && !line.starts_with("     ");
            assert!(!begins_column || explained, "{table}: the column before '{}'", line.trim());
            explained = (explained && !begins_column) || line.contains("-- ");
        }
        assert!(explained, "{table}: the last column");
    }
}
