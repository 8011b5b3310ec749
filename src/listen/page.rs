//! The status page's files, as they are in the binary. They hold nothing of the work: that is asked for by the page.

/// One file: where it is served, what it is, and its text.
pub(super) struct Asset {
    pub(super) path: &'static str,
    pub(super) kind: &'static str,
    pub(super) text: &'static str,
}

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SVG: &str = "image/svg+xml";
const SCRIPT: &str = "text/javascript; charset=utf-8";

macro_rules! asset {
    ($path:literal, $kind:expr, $file:literal) => {
        Asset { path: $path, kind: $kind, text: include_str!(concat!("page/", $file)) }
    };
}

const ASSETS: [Asset; 13] = [
    asset!("/", HTML, "index.html"),
    asset!("/page.css", CSS, "page.css"),
    asset!("/icon.svg", SVG, "icon.svg"),
    asset!("/main.js", SCRIPT, "main.js"),
    asset!("/api.js", SCRIPT, "api.js"),
    asset!("/words.js", SCRIPT, "words.js"),
    asset!("/workers.js", SCRIPT, "workers.js"),
    asset!("/plot.js", SCRIPT, "plot.js"),
    asset!("/lookup.js", SCRIPT, "lookup.js"),
    asset!("/failures.js", SCRIPT, "failures.js"),
    asset!("/letters.js", SCRIPT, "letters.js"),
    asset!("/uPlot.iife.min.js", SCRIPT, "third-party/uplot-1.6.32/uPlot.iife.min.js"),
    asset!("/uPlot.min.css", CSS, "third-party/uplot-1.6.32/uPlot.min.css"),
];

/// A page may load its own files and ask its own server, and that is all. What a message carries is only ever set
/// as text; if it were not, it still could not run.
pub(super) const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    connect-src 'self'; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; \
    require-trusted-types-for 'script'; trusted-types 'none'";

/// What is served at that path.
pub(super) fn asset(path: &str) -> Option<&'static Asset> {
    ASSETS.iter().find(|asset| asset.path == path)
}

#[cfg(test)]
mod tests {
    use sha2::{Digest, Sha256};

    use super::*;

    /// What others wrote is as they published it; its origin is beside it.
    #[test]
    fn the_third_partys_files_are_unchanged() {
        let sums = include_str!("page/third-party/uplot-1.6.32/SHA256SUMS");
        let found =
            |text: &str| Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let license = include_str!("page/third-party/uplot-1.6.32/LICENSE");
        let plot = |name: &str| asset(&format!("/{name}")).map(|asset| asset.text);
        let files = [
            ("LICENSE", Some(license)),
            ("uPlot.iife.min.js", plot("uPlot.iife.min.js")),
            ("uPlot.min.css", plot("uPlot.min.css")),
        ];
        assert_eq!(sums.lines().count(), files.len());
        for (name, text) in files {
            let line = format!("{}  {name}", found(text.unwrap()));
            assert!(sums.lines().any(|sum| sum == line), "{line}");
        }
    }

    /// Everything that the page names is served, and nothing from elsewhere is named.
    #[test]
    fn the_page_is_whole() {
        let own = ASSETS.iter().filter(|asset| !asset.path.contains("uPlot") && asset.kind != SVG);
        for asset in own {
            let named =
                asset.text.split(['"', '\'']).filter(|word| word.ends_with(".js") || word.ends_with(".css"));
            for word in named {
                let path = format!("/{}", word.trim_start_matches("./"));
                assert!(ASSETS.iter().any(|asset| asset.path == path), "{} names {word}", asset.path);
            }
            for foreign in
                ["http:", "https:", "innerHTML", "outerHTML", "insertAdjacent", "document.write", "style="]
            {
                assert!(!asset.text.contains(foreign), "{} has {foreign}", asset.path);
            }
        }
    }
}
