#!/usr/bin/env python3
# site.py - the pages that scripts/site makes: no link is dead, no page loads anything from elsewhere, and the reference has the comments.
#
# Usage: site.py REPOSITORY BUILD_DIRECTORY   (77: mkdocs, mandoc or doxygen is missing)
import html.parser
import os
import shutil
import sys
import urllib.parse

from daemon import directory, main, require, run

ROOT, BUILD = map(os.path.realpath, sys.argv[1:3])
NEEDED = ["mkdocs", "mandoc", "doxygen"]


class Page(html.parser.HTMLParser):
    """The links of a page, what it loads, and its anchors."""

    def __init__(self, path):
        super().__init__()
        self.links, self.loads, self.anchors = set(), set(), set()
        with open(path, encoding="utf-8") as file:
            self.feed(file.read())

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            if name in ("id", "name"):
                self.anchors.add(value)
            elif name == "src" or (tag == "link" and name == "href"):
                self.loads.add(value)
            elif name == "href" and value:
                self.links.add(value)


def test_the_site():
    with directory() as d:
        status, out, err = run(sys.executable, ROOT + "/scripts/site", d + "/site", BUILD)
        require(status == 0, out + err)
        require(run(sys.executable, ROOT + "/scripts/site", d, BUILD)[0] == 1 and os.path.exists(d + "/site/index.html"), "another's files are removed")
        site = d + "/site"
        pages = {path: Page(path) for top, _, names in os.walk(site) for path in (f"{top}/{name}" for name in names) if path.endswith(".html")}
        dead = []  # doxygen links to some headings that it leaves out, so anchors in its pages are not looked at
        for path, page in pages.items():
            for link in page.links | page.loads:
                url = urllib.parse.urlparse(link)
                if url.scheme == "javascript":
                    continue
                if url.scheme or url.netloc:
                    require(link in page.links, f"{path} loads {link}")
                    continue
                target = os.path.normpath(os.path.join(os.path.dirname(path), urllib.parse.unquote(url.path))) if url.path else path
                if path.endswith("/404.html"):  # its links begin at the server's root
                    continue
                if os.path.isdir(target):
                    target += "/index.html"
                if not os.path.exists(target):
                    dead.append(f"{path[len(site):]}: {link}")
                elif "/api/" not in path and url.fragment and target in pages and urllib.parse.unquote(url.fragment) not in pages[target].anchors | {""}:
                    dead.append(f"{path[len(site):]}: {link}: no such anchor")
        require(not dead, f"{len(dead)} dead links: {dead[:10]}")
        require(len(pages) > 100, f"only {len(pages)} pages")
        with open(site + "/api/unet_8h.html", encoding="utf-8") as file:
            require("Copies <code>length</code> bytes and sends them" in file.read(), "the reference lacks the comment of unet_send()")


if __name__ == "__main__":
    if missing := [name for name in NEEDED if not shutil.which(name)]:
        print(f"skipped: needs {', '.join(missing)}: apt-get install {' '.join(NEEDED)}")
        sys.exit(77)
    sys.exit(main(globals()))
