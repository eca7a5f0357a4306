"""Tagged PDF: pages whose parts are marked, and a tree that says what they are. Trees may be partial, wrong, or mean harm."""
import re


def escape(text):
    return text.replace("\\", "\\\\").replace("(", "\\(").replace(")", "\\)").encode("latin-1")


class Tagged:
    """`part` draws a line of text, marked by its tag; `figure` a grey box with an alternative text. Tags of "" are not in the tree."""

    def __init__(self, role_map=b""):
        self.pages, self.role_map = [[]], role_map

    def part(self, tag, text, points=11, y=None, font="F"):
        page = self.pages[-1]
        lines = re.findall(r"\S.{0,85}(?= |$)", text)
        page.append((tag, [(line, points, font) for line in lines], None))
        return self

    def figure(self, alt):
        self.pages[-1].append(("Figure", None, alt))
        return self

    def page(self):
        self.pages.append([])
        return self

    def write(self, tree=None):
        """`tree`: bytes of the K of the root element, in place of the true one; {page} and {first} are numbers of objects."""
        objects = [b""] * 5  # catalogue, pages, fonts, root of the tree
        objects[2] = b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>"
        objects[3] = b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica-Bold>>"
        elements, kids, numbers = [], [], []
        for number, parts in enumerate(self.pages):
            content, y, marks = [], 760, []
            page = len(objects) + 2
            for tag, lines, alt in parts:
                if tag:
                    marks.append((tag, alt))
                    content.append(b"/%s <</MCID %d>> BDC" % (tag.encode(), len(marks) - 1))
                if lines is None:
                    content.append(b"0.5 g 72 %d 200 60 re f 0 g" % (y - 60))
                    y -= 80
                for text, points, font in lines or ():
                    content.append(b"BT /%s %d Tf 72 %d Td (%s) Tj ET" % (font.encode(), points, y, escape(text)))
                    y -= points + 4
                y -= 10
                if tag:
                    content.append(b"EMC")
            data = b"\n".join(content)
            objects.append(b"<</Length %d>>stream\n%s\nendstream" % (len(data), data))
            objects.append(b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 595 842]/StructParents %d/Contents %d 0 R/Resources<</Font<</F 3 0 R/B 4 0 R>>>>>>"
                           % (number, page - 1))
            numbers.append(page)
            elements.append((page, marks))
        first = len(objects) + 1
        for page, marks in elements:
            for i, (tag, alt) in enumerate(marks):
                words = b"/Alt(%s)" % escape(alt) if alt else b""
                objects.append(b"<</Type/StructElem/S/%s/P 5 0 R/Pg %d 0 R/K %d%s>>" % (tag.encode(), page, i, words))
                kids.append(len(objects))
        parents, at = [], first
        for number, (_, marks) in enumerate(elements):
            parents.append(b"%d[%s]" % (number, b" ".join(b"%d 0 R" % (at + i) for i in range(len(marks)))))
            at += len(marks)
        kids = b"[" + b" ".join(b"%d 0 R" % kid for kid in kids) + b"]" if tree is None else tree
        objects[4] = b"<</Type/StructTreeRoot/K%s/ParentTree<</Nums[%s]>>/RoleMap<<%s>>>>" % (kids, b" ".join(parents), self.role_map)
        objects[0] = b"<</Type/Catalog/Pages 2 0 R/MarkInfo<</Marked true>>/StructTreeRoot 5 0 R>>"
        objects[1] = b"<</Type/Pages/Count %d/Kids[%s]>>" % (len(numbers), b" ".join(b"%d 0 R" % page for page in numbers))
        out = b"%PDF-1.7\n" + b"".join(b"%d 0 obj\n%s\nendobj\n" % (i + 1, body) for i, body in enumerate(objects))
        return out + b"trailer<</Size %d/Root 1 0 R>>\n%%%%EOF\n" % (len(objects) + 1)
