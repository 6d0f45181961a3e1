//! Lints of the repository that no compiler has: what a ring may name, what a file begins with, what a document promises.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)] // tests say so by panicking

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    ops::RangeInclusive,
    path::{Path, PathBuf},
};

/// Folders with nothing of ours in them.
const FOREIGN: &[&str] = &["target", "node_modules", "build", "dist", ".git", ".wrangler"];
/// Files whose text is not read: pictures, and locks that tools write.
const NO_TEXT: &[&str] = &["png", "jpg", "gif", "svg", "ico", "wasm", "bin", "lock"];
/// The modules that run anywhere. A call of the platform in one of them would be a second way to the world.
const PURE: &[&str] = &["wire", "transcript", "model", "engine", "store", "agent", "runtime"];
/// Lines of a source file at most, its own tests aside. A longer one is usually two ideas.
const LINES: usize = 700;
/// Files that are longer for now. They may only shrink.
const LONGER: &[(&str, usize)] = &[("src/testkit/client.rs", 1_100), ("src/testkit/db.rs", 850), ("src/testkit/world.rs", 900)];
/// Lines of ARCHITECTURE.md at most: it is read in one sitting or not at all.
const ARCHITECTURE_LINES: usize = 250;

/// The rows of the conformance checklist that are proven today.
const PROVEN: &[RangeInclusive<u16>] = &[1..=22, 31..=172];
/// The rows that come with a later capability.
const LATER: &[(&str, &[RangeInclusive<u16>])] = &[("sub-agents", &[23..=30])];
const ROWS: RangeInclusive<u16> = 1..=172;

/// The rows of turns and tools, `T01` and so on.
const TURN_ROWS: RangeInclusive<u16> = 1..=150;
/// Those that no test of today names, and why.
const TURN_ROWS_LATER: &[(&str, RangeInclusive<u16>)] = &[
    ("what it forbids cannot be written: each way to start a turn is a method of its own, with the arguments it takes", 11..=11),
    ("a turn of another object, with its tools: sub-agents", 97..=105),
    ("page context", 112..=122),
    ("the HTTP session", 123..=143),
];

/// The acceptance scenarios of recovery.
const RECOVERY_ROWS: RangeInclusive<u16> = 1..=128;
/// Those that only the real runtime can show, and the file that does.
const RECOVERY_ON_WORKERD: &[(&str, &[u16])] = &[
    ("tests/e2e/recovery.test.mjs", &[92]),
    ("tests/e2e/halfopen.test.mjs", &[93]),
    ("tests/e2e/rows.test.mjs", &[113, 115]),
    ("tests/e2e/kill/run.mjs", &[39, 114, 120]),
    ("tests/e2e/long.mjs", &[122]),
];
/// Those that no test of today names, and why.
const RECOVERY_LATER: &[(&str, &[RangeInclusive<u16>])] = &[
    ("sub-agents, and the tools of a page that a caller hands over with its call", &[40..=40, 95..=101, 105..=105]),
    ("compaction", &[58..=58, 71..=73]),
];

/// A file of the repository with its text.
struct File {
    /// Its path from the root, with `/`.
    path: String,
    text: String,
}

impl File {
    /// Its lines with their numbers, comments left out.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.text.lines().enumerate().map(|(i, line)| (i + 1, line));
        lines.filter(|(_, line)| !line.trim_start().starts_with("//"))
    }

    fn is_below(&self, folder: &str) -> bool {
        self.path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/') || rest == ".rs")
    }

    fn extension(&self) -> &str {
        self.path.rsplit_once('.').map_or("", |(_, extension)| extension)
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn files() -> Vec<File> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root().join(&folder)).unwrap().map(Result::unwrap) {
            let name = entry.file_name().into_string().unwrap();
            let path = folder.join(&name);
            if entry.file_type().unwrap().is_dir() {
                if !FOREIGN.contains(&name.as_str()) {
                    folders.push(path);
                }
            } else if !NO_TEXT.contains(&path.extension().and_then(|e| e.to_str()).unwrap_or_default())
                // What is no UTF-8 is no text of ours.
                && let Ok(text) = fs::read_to_string(root().join(&path))
            {
                found.push(File { path: path.to_str().unwrap().replace('\\', "/"), text });
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

fn sources() -> Vec<File> {
    files().into_iter().filter(|file| file.is_below("src") && file.extension() == "rs").collect()
}

#[track_caller]
fn assert_none(found: Vec<String>) {
    assert!(found.is_empty(), "{} found:\n{}", found.len(), found.join("\n"));
}

/// The lines of these files, comments aside, in which one of `words` stands.
fn naming(files: impl IntoIterator<Item = File>, words: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for file in files {
        let hits = file.code().filter(|(_, line)| words.iter().any(|word| line.contains(word)));
        found.extend(hits.map(|(n, line)| format!("{}:{n}: {}", file.path, line.trim())));
    }
    found
}

#[test]
fn a_source_file_begins_by_saying_what_it_decides() {
    assert_none(sources().into_iter().filter(|file| !file.text.starts_with("//! ")).map(|file| file.path).collect());
}

#[test]
fn the_pure_rings_do_not_name_the_platform() {
    let pure = sources().into_iter().filter(|file| PURE.iter().any(|ring| file.is_below(&format!("src/{ring}"))));
    assert_none(naming(pure, &["worker::", "use worker", "wasm_bindgen", "web_sys", "js_sys", "rusqlite"]));
}

#[test]
fn only_the_test_kit_names_its_database() {
    assert_none(naming(sources().into_iter().filter(|file| !file.is_below("src/testkit")), &["rusqlite"]));
}

#[test]
fn sql_is_written_in_the_store() {
    // The test kit's database asks about tables it does not know.
    let others = sources().into_iter().filter(|file| !file.is_below("src/store") && !file.is_below("src/testkit/db"));
    assert_none(naming(others, &["SELECT ", "INSERT INTO", "INSERT OR", "UPDATE wk_", "DELETE FROM", "CREATE TABLE", "CREATE INDEX"]));
}

#[test]
fn no_source_reads_a_clock_prints_or_is_unfinished() {
    let words = ["SystemTime::now", "Instant::now", "println!", "eprint!", "dbg!", "todo!", "unimplemented!"];
    assert_none(naming(sources(), &words));
}

#[test]
fn a_source_file_holds_one_idea() {
    let mut found = Vec::new();
    for file in sources().iter().filter(|file| !file.path.ends_with("/tests.rs")) {
        let lines = lines_besides_tests(&file.text);
        let most = LONGER.iter().find(|(path, _)| *path == file.path).map_or(LINES, |(_, most)| *most);
        if lines > most {
            found.push(format!("{}: {lines} lines, limit {most}", file.path));
        }
    }
    for (path, _) in LONGER {
        let file = sources().into_iter().find(|file| file.path == *path);
        if file.is_none_or(|file| lines_besides_tests(&file.text) <= LINES) {
            found.push(format!("{path} is no exception any more"));
        }
    }
    let architecture = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap().lines().count();
    if architecture > ARCHITECTURE_LINES {
        found.push(format!("ARCHITECTURE.md: {architecture} lines, limit {ARCHITECTURE_LINES}"));
    }
    assert_none(found);
}

/// Lines outside of items that exist for tests only.
fn lines_besides_tests(text: &str) -> usize {
    let mut in_test = false;
    let mut count = 0;
    for line in text.lines() {
        in_test |= line == "#[cfg(test)]";
        count += usize::from(!in_test);
        // The item ends with its closing brace, or at once.
        in_test &= line != "}" && (line.starts_with(' ') || !line.ends_with(';'));
    }
    count
}

#[test]
fn nothing_names_the_machine_it_was_written_on() {
    // In pieces, so that this file does not contain them.
    let places = [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/tmp", "/x/"), concat!("/ho", "me/"), concat!("/Us", "ers/")];
    let mut found = Vec::new();
    for file in files() {
        for (n, line) in file.text.lines().enumerate() {
            let named = places.iter().any(|place| mentions(line, place));
            let registry = match file.path.rsplit('/').next() {
                Some("package-lock.json") => line.contains("\"resolved\": \"http"),
                Some(".npmrc" | "config.toml") => line.contains("registry"),
                _ => line.contains(concat!("registry.np", "mjs.org")) || line.contains(concat!("sparse", "+http")),
            };
            if named || registry {
                found.push(format!("{}:{}: {}", file.path, n + 1, line.trim()));
            }
        }
    }
    let lock = fs::read_to_string(root().join("Cargo.lock")).unwrap();
    let sources = lock.lines().filter(|line| line.starts_with("source = "));
    found.extend(sources.filter(|line| !line.ends_with("registry+https://github.com/rust-lang/crates.io-index\"")).map(str::to_owned));
    assert_none(found);
}

/// Whether `line` has `place` as the beginning of a path, not in the middle of a longer one or of an address.
fn mentions(line: &str, place: &str) -> bool {
    line.match_indices(place).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || "-_./~$}{)".contains(c))
    })
}

#[test]
fn every_link_in_a_document_leads_somewhere() {
    let mut found = Vec::new();
    for file in files().iter().filter(|file| file.extension() == "md") {
        let folder = root().join(&file.path).parent().unwrap().to_path_buf();
        for link in links(&file.text) {
            let (path, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() { root().join(&file.path) } else { folder.join(path) };
            if !target.exists() {
                found.push(format!("{}: {link}", file.path));
            } else if !heading.is_empty() && target.extension().is_some_and(|e| e == "md") {
                let text = fs::read_to_string(&target).unwrap();
                if !text.lines().filter(|line| line.starts_with('#')).any(|line| slug(line) == heading) {
                    found.push(format!("{}: no heading for {link}", file.path));
                }
            }
        }
    }
    assert_none(found);
}

/// The targets of links and pictures that are files here. Code blocks have none.
fn links(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut in_code = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if in_code {
            continue;
        }
        for (open, close) in [("](", ')'), ("src=\"", '"'), ("href=\"", '"'), ("srcset=\"", '"')] {
            for (at, _) in line.match_indices(open) {
                let rest = &line[at + open.len()..];
                found.extend(rest.split(close).next());
            }
        }
    }
    found.retain(|link| !link.contains("://") && !link.starts_with("mailto:"));
    found
}

/// The anchor of a heading, as code hosts make it.
fn slug(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn the_table_of_proven_rows_is_complete_and_true() {
    let document = fs::read_to_string(root().join("docs/protocol.md")).unwrap();
    let mut seen = BTreeSet::new();
    let mut texts = BTreeMap::new();
    let mut found = Vec::new();
    for line in document.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let Some(rows) = cells.first().and_then(|cell| range(cell)) else { continue };
        let proof = cells.last().copied().unwrap_or_default();
        for row in rows {
            if !seen.insert(row) {
                found.push(format!("row {row} stands there twice"));
            }
            let later = LATER.iter().find(|(_, ranges)| ranges.iter().any(|r| r.contains(&row)));
            match later {
                Some((capability, _)) if proof == format!("later: {capability}") => {}
                Some((capability, _)) => found.push(format!("row {row} should say `later: {capability}`, says {proof}")),
                None if !PROVEN.iter().any(|r| r.contains(&row)) => found.push(format!("there is no row {row}")),
                None => found.extend(proof.split("<br>").filter_map(|p| doubt(row, p, &mut texts))),
            }
        }
    }
    found.extend(ROWS.filter(|row| !seen.contains(row)).map(|row| format!("row {row} is missing")));
    assert_none(found);
}

#[test]
fn files_and_functions_that_documents_name_exist() {
    let all = files();
    let mut found = Vec::new();
    for file in all.iter().filter(|file| file.extension() == "md") {
        for name in file.text.lines().flat_map(|line| line.split('`').skip(1).step_by(2)).filter(|span| span.contains(".rs")) {
            let (path, parts) = name.split_once("::").unwrap_or((name, ""));
            let ends = format!("/{path}");
            let mut sources = all.iter().filter(|source| source.path == path || source.path.ends_with(&ends)).peekable();
            if sources.peek().is_none() {
                found.push(format!("{}: there is no file {name}", file.path));
            } else if !sources.any(|source| parts.split("::").all(|part| source.text.contains(part))) {
                found.push(format!("{}: {path} has no {parts}", file.path));
            }
        }
    }
    assert_none(found);
}

#[test]
fn settings_and_providers_are_documented() {
    let read = |path: &str| fs::read_to_string(root().join(path)).unwrap();
    let mut found = Vec::new();
    let standalone = read("src/standalone.rs");
    let settings: BTreeSet<&str> = standalone.split("var(\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert!(settings.contains("MODEL") && settings.len() > 5, "{settings:?}");
    for path in ["README.md", "docs/deploying.md"] {
        let text = read(path);
        found.extend(settings.iter().filter(|name| !text.contains(&format!("| `{name}` |"))).map(|name| format!("{path}: {name}")));
    }
    let documented = read("docs/providers.md");
    let profiles = read("src/model/profile.rs");
    let value = |text: &str, field: &str| {
        let rest = text.split_once(&format!("\n        {field}: \"")).or_else(|| text.split_once(&format!("\n    {field}: \"")))?.1;
        Some(rest.split('"').next()?.to_owned())
    };
    for profile in profiles.split("Profile {").skip(1) {
        let Some(id) = value(profile, "id") else { continue };
        let row = documented.lines().find(|line| line.starts_with(&format!("| `{id}` |")));
        let base = value(profile, "base").unwrap_or_default();
        if !row.is_some_and(|row| base.is_empty() || row.contains(&format!("`{base}`"))) {
            found.push(format!("docs/providers.md: {id} at {base:?}"));
        }
    }
    assert_none(found);
}

#[test]
fn the_agent_of_the_readme_is_that_of_the_crate() {
    let example = |lines: &mut dyn Iterator<Item = String>| -> Vec<String> {
        lines.skip_while(|line| !line.starts_with("use wakeful")).take_while(|line| !line.starts_with("```")).collect()
    };
    let crate_docs = fs::read_to_string(root().join("src/lib.rs")).unwrap();
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let ours = example(
        &mut crate_docs.lines().filter_map(|line| line.strip_prefix("//!")).map(|line| line.trim_start_matches(' ').to_owned()),
    );
    let theirs = example(&mut readme.lines().map(|line| line.trim_start_matches(' ').to_owned()));
    assert!(ours.len() > 10, "{ours:?}");
    assert_eq!(ours, theirs);
}

#[test]
fn tests_that_documents_promise_exist() {
    let mut found = Vec::new();
    for file in files().iter().filter(|file| file.extension() == "md" && file.path != "docs/protocol.md") {
        let cells = file.text.lines().filter(|line| line.starts_with("| ")).flat_map(|line| line.trim_matches('|').split(" | "));
        for (path, name) in cells.flat_map(|cell| cell.split("<br>")).filter_map(named_test) {
            let text = fs::read_to_string(root().join(path)).unwrap_or_default();
            if block(&text, name).is_none() {
                found.push(format!("{}: {path} has no test {name:?}", file.path));
            }
        }
    }
    assert_none(found);
}

/// `7`, or `23–30`.
fn range(cell: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = cell.split_once('–').unwrap_or((cell, cell));
    Some(first.parse().ok()?..=last.parse().ok()?)
}

/// A test as documents name it: `` `file`: name of the test ``.
fn named_test(text: &str) -> Option<(&str, &str)> {
    let named = text.trim().strip_prefix('`')?.split_once("`: ");
    named.filter(|(path, _)| ["src/", "tests/", "web/"].iter().any(|folder| path.starts_with(folder)))
}

/// What is wrong with a proof of a row.
fn doubt(row: u16, proof: &str, texts: &mut BTreeMap<String, String>) -> Option<String> {
    let Some((path, name)) = named_test(proof) else {
        return Some(format!("row {row}: a proof reads `` `file`: name of the test ``, not {proof}"));
    };
    let text = texts.entry(path.to_owned()).or_insert_with(|| fs::read_to_string(root().join(path)).unwrap_or_default());
    let Some(block) = block(text, name) else { return Some(format!("row {row}: {path} has no test {name:?}")) };
    if !is_run(path) {
        return Some(format!("row {row}: nothing runs {path}"));
    }
    if block.contains("#[ignore") || block.contains(".skip(") || block.contains(".todo(") {
        return Some(format!("row {row}: {name:?} of {path} does not run"));
    }
    (!cited(block).contains(&row)).then(|| format!("row {row}: {name:?} of {path} does not cite it"))
}

/// Whether `cargo test` compiles this file, or `npm test` runs it.
fn is_run(path: &str) -> bool {
    let text = |path: &str| fs::read_to_string(root().join(path)).unwrap_or_default();
    match path.strip_prefix("tests/scenarios/").and_then(|file| file.strip_suffix(".rs")) {
        Some("main") | None => !path.starts_with("tests/e2e/worker/") || text("scripts/test.mjs").contains("tests/e2e/worker"),
        Some(module) => {
            let names = |file: &str, module: &str| text(file).lines().any(|line| line.trim() == format!("mod {module};"));
            let (folder, file) = module.split_once('/').unwrap_or((module, "mod"));
            names("tests/scenarios/main.rs", folder) && (file == "mod" || names(&format!("tests/scenarios/{folder}/mod.rs"), file))
        }
    }
}

/// The test of this name with the comments above it: a Rust function with `#[test]`, a call that has the name first, or one of
/// the JavaScript functions to which every end-to-end test hands its frames.
fn block<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let lines: Vec<&str> = text.lines().collect();
    let function = format!("fn {name}(");
    let strings = [format!("\"{name}\","), format!("`{name}`,")];
    let invariant = format!("function {name}(");
    let is_name = |line: &str| {
        let is_argument = |string: &String| line.trim_start().starts_with(string) || line.contains(&format!("({string}"));
        line.contains(&function) || line.starts_with(&invariant) || strings.iter().any(is_argument)
    };
    let at = lines.iter().position(|line| is_name(line))?;
    let mut first = at;
    if lines[at].trim_start().starts_with(['"', '`']) {
        first = first.checked_sub(1)?; // the call stands a line above its first argument
    }
    let indent: String = lines[first].chars().take_while(|c| *c == ' ').collect();
    let last = (first + 1..lines.len())
        .find(|i| lines[*i].strip_prefix(&indent).is_some_and(|rest| rest.starts_with('}') || rest.starts_with(')')))?;
    let belongs = |line: &str| ["//", "#[", "/*", "*"].iter().any(|mark| line.trim_start().starts_with(mark));
    while first > 0 && belongs(lines[first - 1]) {
        first -= 1;
    }
    if lines[at].contains(&function) && !lines[first..at].iter().any(|line| line.trim() == "#[test]") {
        return None;
    }
    let start = lines[first].as_ptr() as usize - text.as_ptr() as usize;
    let end = lines[last].as_ptr() as usize - text.as_ptr() as usize + lines[last].len();
    text.get(start..end)
}

/// The rows in citations such as `wire 58, 60, O3` and `wire 1–20`.
fn cited(text: &str) -> BTreeSet<u16> {
    let mut rows = BTreeSet::new();
    for (at, word) in text.match_indices("wire ") {
        let line = text[at + word.len()..].lines().next().unwrap_or_default();
        for item in line.split([',', ';', ':', '(', ')']).map(str::trim) {
            let item = item.strip_prefix("wire ").unwrap_or(item);
            match range(item) {
                Some(range) => rows.extend(range),
                // §4.4, X3 and O5 may stand between rows; anything else ends the list.
                None if item.starts_with(['§', 'X', 'O']) => {}
                None => break,
            }
        }
    }
    rows
}

/// The rows in citations such as `recovery 12, 28, D3; I5`.
fn recovery_rows(text: &str) -> BTreeSet<u16> {
    let mut rows = BTreeSet::new();
    for (at, word) in text.match_indices("recovery ") {
        let line = text[at + word.len()..].lines().next().unwrap_or_default();
        for item in line.split([',', ';', ':', '(', ')']).map(str::trim) {
            let item = item.strip_prefix("recovery ").unwrap_or(item);
            let is_label = item.starts_with(|c: char| "BCDIKNPQW§".contains(c)) && item.chars().skip(1).all(|c| !c.is_alphabetic());
            match range(item) {
                Some(range) => rows.extend(range),
                // Labels may stand between rows; anything else ends the list.
                None if is_label => {}
                None => break,
            }
        }
    }
    rows
}

/// What the tests of a file cite: Rust functions that `cargo test` runs, and comments inside the tests of the real runtime.
fn recovery_rows_of(file: &File) -> BTreeSet<u16> {
    if file.is_below("tests/e2e") && file.extension() == "mjs" {
        let body = file.text.lines().skip_while(|line| line.starts_with("//"));
        return body.filter_map(|line| line.split_once("//")).flat_map(|(_, comment)| recovery_rows(comment)).collect();
    }
    if file.extension() != "rs" || file.path == "tests/tidy.rs" || !is_run(&file.path) {
        return BTreeSet::new();
    }
    let names = file.text.lines().filter_map(|line| line.trim_start().strip_prefix("fn ")?.split_once('(')).map(|(name, _)| name);
    let blocks = names.filter_map(|name| block(&file.text, name)).filter(|block| !block.contains("#[ignore"));
    let comments = blocks.flat_map(str::lines).filter_map(|line| line.split_once("//")).map(|(_, comment)| comment);
    comments.flat_map(recovery_rows).collect()
}

#[test]
fn every_scenario_of_recovery_is_proven_or_named_as_later() {
    let cited: Vec<(String, BTreeSet<u16>)> = files().iter().map(|file| (file.path.clone(), recovery_rows_of(file))).collect();
    let by =
        |row: u16, file: Option<&str>| cited.iter().any(|(path, rows)| file.is_none_or(|file| file == path) && rows.contains(&row));
    let mut found = Vec::new();
    for row in RECOVERY_ROWS {
        let later = RECOVERY_LATER.iter().find(|(_, rows)| rows.iter().any(|rows| rows.contains(&row)));
        let workerd = RECOVERY_ON_WORKERD.iter().find(|(_, rows)| rows.contains(&row));
        match (later, workerd) {
            (Some(_), _) if by(row, None) => found.push(format!("recovery {row} is named by a test and as later")),
            (Some(_), None) => {}
            (None, Some((file, _))) if by(row, Some(file)) => {}
            (_, Some((file, _))) => found.push(format!("recovery {row} is not cited by {file}")),
            (None, None) if by(row, None) => {}
            (None, None) => found.push(format!("recovery {row} is proven nowhere")),
        }
    }
    assert_none(found);
}

/// The rows in citations such as `T31, T34–T40`.
fn turn_rows(line: &str) -> Vec<u16> {
    let number = |word: &str| word.strip_prefix('T').filter(|digits| (2..=3).contains(&digits.len()))?.parse::<u16>().ok();
    let words = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '–');
    let rows = words.filter_map(|word| {
        let (from, to) = word.split_once('–').unwrap_or((word, word));
        Some(number(from)?..=number(to)?)
    });
    rows.flatten().collect()
}

#[test]
fn every_row_of_turns_and_tools_is_named_by_a_test_or_as_later() {
    let mut named = BTreeSet::new();
    for file in files().iter().filter(|f| matches!(f.extension(), "rs" | "mjs") && !f.path.ends_with("tidy.rs")) {
        let comments = file.text.lines().filter_map(|line| line.split_once("//")).map(|(_, comment)| comment);
        named.extend(comments.flat_map(turn_rows));
    }
    let later = |row: &u16| TURN_ROWS_LATER.iter().any(|(_, rows)| rows.contains(row));
    let missing = TURN_ROWS.filter(|row| !named.contains(row) && !later(row)).map(|row| format!("T{row:02} is named nowhere"));
    let settled = named.iter().filter(|row| later(row)).map(|row| format!("T{row:02} is named by a test and as later"));
    assert_none(missing.chain(settled).collect());
}

#[test]
fn citations_are_read_as_people_write_them() {
    assert_eq!(turn_rows(" T31, T34–T36, tools T7, T-01; T62a, T105"), [31, 34, 35, 36, 105]);
    for (text, rows) in [
        ("recovery 11, 21, D12, I2; N12: a log, 7", vec![11, 21]),
        ("T27, recovery 4.4: nobody, 5", vec![]),
        ("recovery §6.8: every crash point, 3", vec![]),
        ("recovery 49, recovery 50, recovery N2: a late alarm", vec![49, 50]),
        ("budgets of recovery and 4", vec![]),
    ] {
        assert_eq!(recovery_rows(text), rows.into_iter().collect(), "{text}");
    }
    for (text, rows) in [
        ("// wire 58, 60, 61, O3", vec![58, 60, 61]),
        ("// wire 97, §4.3, 142", vec![97, 142]),
        ("// wire 1–3; decision 49, 7", vec![1, 2, 3]),
        ("// wire §1.3, decision 49", vec![]),
        ("// wire 4.3, 165", vec![]),
        ("(\"/agents/nope/x\", Routed::Invalid), // wire 3", vec![3]),
        ("// wire 62, wire 63, field P-06", vec![62, 63]),
        ("// the wire is long, 7", vec![]),
    ] {
        assert_eq!(cited(text), rows.into_iter().collect(), "{text}");
    }
}

#[test]
fn blocks_are_whole_tests_and_nothing_else() {
    let rust = "// wire 1\n#[test]\nfn one() {\n    // wire 2\n    x();\n}\n\n// wire 3\nfn helper() {\n}\n";
    assert_eq!(cited(block(rust, "one").unwrap()), BTreeSet::from([1, 2]));
    assert_eq!(block(rust, "helper"), None, "a function that is no test proves nothing");
    let script =
        "// wire 4\nserved.test(\n  \"two\",\n  async () => {\n    // wire 5\n  },\n);\ntest(\"three\", () => {\n  // wire 6\n});\n";
    assert_eq!(cited(block(script, "two").unwrap()), BTreeSet::from([4, 5]));
    assert_eq!(cited(block(script, "three").unwrap()), BTreeSet::from([6]));
    assert_eq!(block(script, "four"), None);
    let made = "  test(`${who} goes`, () => {\n    // wire 7\n  });\n";
    assert_eq!(cited(block(made, "${who} goes").unwrap()), BTreeSet::from([7]));
}
