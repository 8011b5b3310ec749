//! A text of several SQL statements, taken apart at its semicolons.

/// One statement and where it stands.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// Counts from 1.
    pub(super) number: usize,
    /// Of its first word; counts from 1.
    pub(super) line: usize,
    pub(super) sql: String,
}

/// The statements of `text`, without those that are empty or only comments. Semicolons in texts,
/// names and comments part nothing. (Those in the body of a `CREATE TRIGGER` do: no schema is expected here.)
pub(super) fn split(text: &str) -> Vec<Piece> {
    let bytes = text.as_bytes();
    let mut pieces = Vec::new();
    // Where the statement's first word stands, once there is one.
    let mut start = None;
    let mut at = 0;
    while at < bytes.len() {
        let rest = &text[at..];
        let length = match bytes[at] {
            b'-' if rest.starts_with("--") => rest.find('\n').unwrap_or(rest.len()),
            b'/' if rest.starts_with("/*") => rest[2..].find("*/").map_or(rest.len(), |end| end + 4),
            b';' => {
                pieces.extend(start.take().map(|start| piece(text, start, at)));
                1
            }
            byte if byte.is_ascii_whitespace() => 1,
            byte => {
                start.get_or_insert(at);
                match byte {
                    b'\'' | b'"' | b'`' => quoted(rest, char::from(byte)),
                    b'[' => rest.find(']').map_or(rest.len(), |end| end + 1),
                    _ => rest.chars().next().map_or(1, char::len_utf8),
                }
            }
        };
        at += length;
    }
    pieces.extend(start.map(|start| piece(text, start, text.len())));
    for (index, piece) in pieces.iter_mut().enumerate() {
        piece.number = index + 1;
    }
    pieces
}

fn piece(text: &str, start: usize, end: usize) -> Piece {
    let line = text[..start].matches('\n').count() + 1;
    Piece { number: 0, line, sql: text[start..end].trim_end().to_owned() }
}

/// The length of a quoted text; a doubled quote is two of them, one after the other.
fn quoted(rest: &str, quote: char) -> usize {
    rest[1..].find(quote).map_or(rest.len(), |end| end + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sql(text: &str) -> Vec<String> {
        split(text).into_iter().map(|piece| piece.sql).collect()
    }

    #[test]
    fn semicolons_in_texts_names_and_comments_part_nothing() {
        for statement in [
            "SELECT ';'",
            "SELECT 'it''s; one'",
            "SELECT \"a;b\", `c;d`, [e;f]",
            "SELECT 1 -- a; b\n + 1",
            "SELECT 1 /* a; ' b */ + 1",
            "SELECT 'zwölf; …'",
            "SELECT 1 - 2 / 3",
        ] {
            assert_eq!(sql(&format!("{statement};\n{statement}")), [statement, statement]);
        }
    }

    #[test]
    fn what_is_empty_or_a_comment_is_no_statement() {
        assert_eq!(sql(" ;; -- nothing\n/* ; */ ;"), Vec::<String>::new());
        assert_eq!(sql("-- first\nSELECT 1; -- last"), ["SELECT 1"]);
    }

    #[test]
    fn what_is_never_closed_ends_with_the_text() {
        for text in ["SELECT 'a;", "SELECT [a;", "SELECT \"", "SELECT '"] {
            assert_eq!(sql(text), [text]);
        }
        assert_eq!(sql("SELECT 1 /* a;"), ["SELECT 1 /* a;"]);
        assert_eq!(sql("/*"), Vec::<String>::new());
    }

    #[test]
    fn numbers_and_lines_say_where_a_statement_begins() {
        let places: Vec<_> =
            split("-- a\n\nSELECT\n1;;SELECT 2;\n\n  SELECT 3").iter().map(|p| (p.number, p.line)).collect();
        assert_eq!(places, [(1, 3), (2, 4), (3, 6)]);
    }
}
