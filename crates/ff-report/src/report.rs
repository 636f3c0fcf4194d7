//! `report.html`: one page with a command's results, figures, tables and inputs.
//!
//! It has no script and loads nothing, which its content security policy forbids anyway; so it can
//! be kept, mailed and opened anywhere. All text from inputs is escaped. It looks like a
//! coordinator's page, light or dark as the reader's system is. Content that is wider than the
//! screen scrolls, with a hint.

use std::fmt::{self, Write as _};

use crate::figure::Figure;
use crate::input::Input;
use crate::markup::Escaped;
use crate::skipped::Skips;

/// No table shows more rows than this; all of them are in its file.
const MOST_ROWS: usize = 40;
/// No more documents that were left out are listed.
const MOST_SKIPS: usize = 100;

/// What stands on a page.
#[derive(Clone, Copy, Debug)]
pub struct Page<'a> {
    /// The program and its command.
    pub command: &'a str,
    /// The inputs that were read.
    pub inputs: &'a [Input],
    /// The parts of them that were left out.
    pub skips: &'a Skips,
    /// The seed of all that was drawn.
    pub seed: Option<u64>,
    /// The results as they are printed.
    pub text: &'a str,
    /// The figures.
    pub figures: &'a [Figure],
    /// Tables: names of their files, headers, rows.
    pub tables: &'a [crate::output::Table],
}

impl Page<'_> {
    /// The page.
    #[must_use]
    pub fn html(&self) -> String {
        let mut page = String::new();
        // Writing to a string does not fail.
        let _ = self.write(&mut page);
        page
    }

    fn write(&self, page: &mut String) -> fmt::Result {
        writeln!(
            page,
            "{HEAD}<title>{0}</title>\n<style>{STYLE}{1}</style>\n</head>\n<body>\n<main>\n<h1>{0}</h1>",
            Escaped(self.command),
            figure_style()
        )?;
        let seed = self.seed.map_or("no random numbers".to_owned(), |seed| format!("seed {seed}"));
        writeln!(page, "<p>Version {}, {seed}.</p>", env!("CARGO_PKG_VERSION"))?;
        writeln!(page, "<h2>Results</h2>\n<pre tabindex=\"0\">{}</pre>", Escaped(self.text))?;
        for figure in self.figures {
            let (name, svg) = (figure.name, figure.svg());
            writeln!(
                page,
                "<figure id=\"{name}\">\n<div class=\"drawing\" tabindex=\"0\">{svg}</div>"
            )?;
            if !figure.note.is_empty() {
                writeln!(page, "<figcaption>{}</figcaption>", Escaped(&figure.note))?;
            }
            page.push_str("</figure>\n");
        }
        for (name, header, rows) in self.tables {
            write_table(page, name, header, rows)?;
        }
        self.write_inputs(page)?;
        self.write_skips(page)?;
        page.push_str("</main>\n</body>\n</html>\n");
        Ok(())
    }

    /// Writes what was read.
    fn write_inputs(&self, page: &mut String) -> fmt::Result {
        page.push_str("<h2>Inputs</h2>\n");
        if self.inputs.is_empty() {
            page.push_str("<p>No input files.</p>\n");
            return Ok(());
        }
        write_head(page, &["file", "bytes", "SHA-256"])?;
        for Input { path, bytes, sha256 } in self.inputs {
            let (path, sha256) = (Escaped(path), Escaped(sha256));
            writeln!(
                page,
                "<tr><td>{path}</td><td>{bytes}</td><td><code>{sha256}</code></td></tr>"
            )?;
        }
        page.push_str(TABLE_END);
        Ok(())
    }

    /// Writes what was left out.
    fn write_skips(&self, page: &mut String) -> fmt::Result {
        let (all, read) = (&self.skips.all, self.skips.read);
        // What was merged does not say how much was read.
        let beside = match read {
            0 => String::new(),
            read => format!(", {read} documents or rows read"),
        };
        writeln!(page, "<h2>Left out</h2>\n<p>{} left out{beside}.</p>", self.skips.left_out())?;
        let missing = &self.skips.missing;
        if !missing.is_empty() {
            writeln!(page, "<p>{} gaps in the input are listed after these.</p>", missing.len())?;
        }
        if all.is_empty() && missing.is_empty() {
            return Ok(());
        }
        write_head(page, &["file", "entry", "line", "reason"])?;
        for one in all.iter().chain(missing).take(MOST_SKIPS) {
            let line = one.line.map(|line| line.to_string()).unwrap_or_default();
            let entry = Escaped(one.entry.as_deref().unwrap_or_default());
            let (file, told) = (Escaped(&one.file), one.told());
            let reason = Escaped(&told);
            writeln!(
                page,
                "<tr><td>{file}</td><td>{entry}</td><td>{line}</td><td>{reason}</td></tr>"
            )?;
        }
        page.push_str(TABLE_END);
        let more = (all.len() + missing.len()).saturating_sub(MOST_SKIPS);
        if more > 0 {
            writeln!(page, "<p>{more} more are in errors.csv.</p>")?;
        }
        Ok(())
    }
}

/// Writes a table, or its first rows.
fn write_table(
    page: &mut String,
    name: &str,
    header: &[&str],
    rows: &crate::output::Rows,
) -> fmt::Result {
    writeln!(page, "<h2>{}</h2>", Escaped(name))?;
    if rows.is_empty() {
        page.push_str("<p>No rows.</p>\n");
        return Ok(());
    }
    write_head(page, header)?;
    for row in rows.iter().take(MOST_ROWS) {
        page.push_str("<tr>");
        for value in row {
            write!(page, "<td>{}</td>", Escaped(value))?;
        }
        page.push_str("</tr>\n");
    }
    page.push_str(TABLE_END);
    if rows.len() > MOST_ROWS {
        writeln!(page, "<p>{} more rows are in {}.</p>", rows.len() - MOST_ROWS, Escaped(name))?;
    }
    Ok(())
}

/// Begins a table with these columns.
fn write_head(page: &mut String, columns: &[&str]) -> fmt::Result {
    page.push_str("<div class=\"wide\" tabindex=\"0\"><table>\n<thead><tr>");
    for name in columns {
        write!(page, "<th scope=\"col\">{}</th>", Escaped(name))?;
    }
    page.push_str("</tr></thead>\n<tbody>\n");
    Ok(())
}

/// The style of drawings on this page: texts have at least 11 pixels, and a dark page has other
/// colours.
fn figure_style() -> String {
    let least = (crate::figure::WIDTH * MIN_TEXT_PX / crate::figure::FONT_SIZE).ceil();
    let mut style = format!("figure svg {{ min-width: {least}px; }}\n");
    style.push_str("@media (prefers-color-scheme: dark) {\n");
    let fixed = [
        ("fill", "#fff", "var(--back)"),
        ("fill", "#000", "var(--text)"),
        ("fill", "#ddd", "var(--line)"),
        ("stroke", "#000", "var(--text)"),
        ("stroke", "#e0e0e0", "var(--grid)"),
    ];
    let curves = crate::figure::COLOURS.map(|(light, dark)| ("stroke", light, dark));
    for (property, light, dark) in fixed.into_iter().chain(curves) {
        // Writing to a string does not fail.
        let _ = writeln!(style, "figure [{property}=\"{light}\"] {{ {property}: {dark}; }}");
    }
    style.push_str("}\n");
    style
}

/// The size of the smallest text of a drawing, however narrow the screen is.
const MIN_TEXT_PX: f64 = 11.0;

const TABLE_END: &str = "</tbody></table></div>\n";

/// Everything above the title.
const HEAD: &str = "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
    <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
    <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
    <meta name=\"color-scheme\" content=\"light dark\">\n";

/// The look of the page. What is wider than the page can be scrolled, and has a shadow where it
/// goes on.
const STYLE: &str = "
:root { color-scheme: light dark; --back: #ffffff; --text: #1a2330; --dim: #525d6c; --line: #d3d9e2;
  --grid: #e6e9ef; --link: #1c5aa8; --shade: #8b96a5; }
@media (prefers-color-scheme: dark) { :root { --back: #12171e; --text: #e6eaf0; --dim: #a7b1bf;
  --line: #364150; --grid: #2a3340; --link: #8ab8f0; --shade: #6d7888; } }
body { max-width: 100rem; margin: 2rem auto; padding: 0 1rem; color: var(--text); background: var(--back);
  font: 15px/1.45 system-ui, sans-serif; }
h1 { font-size: 1.5rem; overflow-wrap: anywhere; } h2 { font-size: 1.1rem; margin-top: 2rem; overflow-wrap: anywhere; }
pre { overflow-x: auto; padding: .8rem; border: 1px solid var(--line); font-size: .85rem; }
[tabindex]:focus-visible { outline: 3px solid var(--link); outline-offset: 2px; }
figure { margin: 1.5rem 0; } figure svg { display: block; max-width: 100%; height: auto; }
figcaption { color: var(--dim); font-size: .9rem; }
.drawing { overflow-x: auto; }
.wide { overflow-x: auto; }
/* Where there is more to the side, a shade lies at that edge. */
.wide, pre { background: linear-gradient(to right, var(--back) 50%, transparent) 0 0 / 3rem 100% no-repeat local,
  linear-gradient(to left, var(--back) 50%, transparent) 100% 0 / 3rem 100% no-repeat local,
  linear-gradient(to right, var(--shade), transparent) 0 0 / .6rem 100% no-repeat scroll,
  linear-gradient(to left, var(--shade), transparent) 100% 0 / .6rem 100% no-repeat scroll var(--back); }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .6rem; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
thead th { color: var(--dim); }
@media (max-width: 40rem) {
  .drawing::before { content: \"Wider than the screen: scroll sideways\"; display: inline-block; position: sticky; left: 0; color: var(--dim);
    font-size: .85rem; }
}
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::Axis;

    #[test]
    fn a_page_needs_no_network_and_escapes_what_it_is_given() {
        let hostile = "<script>alert('1')</script>\u{202e}\u{1b}[2J";
        let mut skips = Skips { read: 9, ..Skips::default() };
        skips.add(hostile, Some(hostile), Some(3), hostile);
        let inputs = [Input { path: hostile.to_owned(), bytes: 7, sha256: "ab".to_owned() }];
        let figure = Figure::new("fig1", hostile, Axis::linear("x"), Axis::linear("y"))
            .with(hostile, vec![(0.0, 1.0), (1.0, 2.0)])
            .noting(hostile);
        let rows = (0..50).map(|row| vec![row.to_string(), hostile.to_owned()]).collect();
        let tables: [crate::output::Table; 1] = [("odd.csv", &["row", "what_secs"], rows)];
        let (figures, text) = (std::slice::from_ref(&figure), hostile);
        let page = Page {
            command: "test",
            inputs: &inputs,
            skips: &skips,
            seed: Some(7),
            text,
            figures,
            tables: &tables,
        };
        let html = page.html();
        assert_eq!(html, page.html());
        assert!(
            !html.contains("<script") && !html.contains('\u{202e}') && !html.contains('\u{1b}')
        );
        for part in [
            "default-src 'none'",
            "seed 7",
            "<svg",
            "10 more rows are in odd.csv",
            "what_secs",
            "1 left out",
            "<th scope=\"col\">what_secs</th>",
            "prefers-color-scheme: dark",
        ] {
            assert!(html.contains(part), "{part}");
        }
        // 13 of 720 units are 11 pixels at this width.
        assert!(html.contains("figure svg { min-width: 610px; }"), "texts can be read");
        for (light, dark) in crate::figure::COLOURS {
            let rule = format!("figure [stroke=\"{light}\"] {{ stroke: {dark}; }}");
            assert!(html.contains(&rule), "{rule}");
        }
        // Nothing but the name of SVG's elements looks like an address.
        let rest = html.replace("http://www.w3.org/2000/svg", "");
        assert!(!rest.contains("http://") && !rest.contains("https://") && !rest.contains("url("));
    }

    #[test]
    #[ignore = "needs Debian's package chromium and axe-core; .ci/run runs it"]
    fn browser_with_axe_finds_nothing_serious() {
        const FIND: &str = "axe.run().then(found => {
            const text = document.createElement('pre');
            text.textContent = 'broken rules: ' + JSON.stringify(found.violations
                .filter(rule => ['serious', 'critical'].includes(rule.impact))
                .map(rule => [rule.id, rule.nodes.map(node => node.html)]));
            document.body.append(text); })";
        let axe =
            std::env::var_os("FF_TEST_AXE").expect("the path of axe.min.js, as .ci/test sets it");
        let axe = std::fs::read_to_string(axe).expect("axe-core");
        let figure = Figure::new("fig1", "Figure", Axis::linear("x"), Axis::linear("y"))
            .with("curve", vec![(0.0, 1.0), (1.0, 2.0)]);
        let rows = (0..50).map(|row| vec![row.to_string(), "text".to_owned()]).collect();
        let tables: [crate::output::Table; 1] = [("some.csv", &["row", "what"], rows)];
        let page = Page {
            command: "test",
            inputs: &[Input { path: "a/file".to_owned(), bytes: 7, sha256: "ab".to_owned() }],
            skips: &Skips { read: 9, ..Skips::default() },
            seed: Some(7),
            text: "A line of text.",
            figures: std::slice::from_ref(&figure),
            tables: &tables,
        };
        // A report allows no scripts.
        let html = page.html().replace("default-src 'none'", "script-src 'unsafe-inline'");
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("report.html");
        let scripts = format!("{html}<script>{axe}</script><script>{FIND}</script>");
        std::fs::write(&path, scripts).expect("written");
        let output = std::process::Command::new("chromium")
            .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
            .args(["--virtual-time-budget=60000", "--dump-dom"])
            .arg(format!("--user-data-dir={}", dir.path().join("profile").display()))
            .arg(format!("file://{}", path.display()))
            .output()
            .expect("Debian's package chromium");
        let dom = String::from_utf8_lossy(&output.stdout);
        let found = dom.rsplit_once("broken rules: ").map(|(_, found)| found);
        assert!(found.is_some_and(|found| found.starts_with("[]<")), "{found:?}");
    }
}
