#!/usr/bin/env python3
"""Makes the pictures of README.md from what our programs wrote: report.html, and the coordinator's page.

    cargo run --release -p ff-demo -- --out demo
    doc/images/make.py report demo/report.html > doc/images/report.svg

    cargo run --release -p ff-bwauth -- demo --network --relays 16 --period-secs 600
    # prints the addresses of the pages; after half a period, in another terminal:
    doc/images/make.py page http://127.0.0.1:PORT/ > doc/images/page.svg

Each picture is the HTML itself, with its own style sheet, in an SVG (foreignObject): browsers show it,
other viewers of SVG do not.
"""

import html
import re
import sys
import urllib.parse
import urllib.request
from html.parser import HTMLParser
from pathlib import Path

# Elements that have no end tag in HTML.
VOID = {"br", "col", "hr", "img", "input", "link", "meta"}
# Elements that a picture has no use for, with all that is in them.
DROPPED = {"head", "noscript", "script", "style", "footer", "form"}
# SVG distinguishes case, and the parser does not.
CASE = {"viewbox": "viewBox", "preserveaspectratio": "preserveAspectRatio"}
# Of each picture: its size in pixels, and what of the page it shows, from the first text to before the second.
PICTURES = {
    "report": ((960, 700), "<body>", "<h2>"),
    "page": ((1080, 960), "<body>", "</main>"),
}


class Body(HTMLParser):
    """The elements of a page as XML."""

    def __init__(self):
        super().__init__()
        self.out, self.open, self.dropping = [], [], 0

    def handle_starttag(self, tag, attributes):
        if tag in DROPPED:
            self.dropping += 1
        elif not self.dropping:
            names = ((CASE.get(name, name), name if value is None else value) for name, value in attributes)
            written = dict(names)
            if tag == "svg":
                written["xmlns"] = "http://www.w3.org/2000/svg"
            text = "".join(f' {name}="{html.escape(value)}"' for name, value in written.items())
            self.out.append(f"<{tag}{text}" + ("/>" if tag in VOID else ">"))
            if tag not in VOID:
                self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag):
        if tag in DROPPED:
            self.dropping -= 1
        elif not self.dropping and tag in self.open:
            while (last := self.open.pop()) != tag:
                self.out.append(f"</{last}>")
            self.out.append(f"</{tag}>")

    def handle_data(self, data):
        if not self.dropping:
            self.out.append(html.escape(data, quote=False))

    def xml(self):
        """All of it, with what is still open closed."""
        return "".join(self.out) + "".join(f"</{tag}>" for tag in reversed(self.open))


def read(source):
    """The text of a file or an address."""
    if "://" not in source:
        return Path(source).read_text(encoding="utf-8")
    with urllib.request.urlopen(source, timeout=10) as answer:
        return answer.read().decode("utf-8")


def style(page, source):
    """The page's style sheets, in the page or linked. The page's body becomes the picture's outermost element."""
    sheets = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    links = re.findall(r'<link rel="stylesheet" href="([^"]*)"', page)
    sheets += [read(urllib.parse.urljoin(source, link)) for link in links]
    return re.sub(r"(^|[\s},])(body|html)(?=[\s.{,])", r"\1.picture", "\n".join(sheets))


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in PICTURES:
        sys.exit(f"usage: make.py {'|'.join(PICTURES)} FILE|URL")
    (width, height), first, end = PICTURES[sys.argv[1]]
    page = read(sys.argv[2])
    if first not in page:
        sys.exit(f"{sys.argv[2]}: there is no {first} in it: is it a page of ff-bwauth or ff-demo?")
    body = Body()
    body.feed(page.split(first, 1)[1].split(end, 1)[0])
    body.close()
    sheet = html.escape(style(page, sys.argv[2]), quote=False)
    print(f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">')
    print(f'<foreignObject width="{width}" height="{height}">')
    print('<div xmlns="http://www.w3.org/1999/xhtml"><style>')
    print(sheet + "\n.picture { height: 100vh; overflow: hidden; }")
    print(f'</style><div class="picture">{body.xml()}</div></div>\n</foreignObject>\n</svg>')


main()
