"""tests/index/make_files.py FOLDER: small files of every kind that retro-index reads, and hostile ones. Standard library
alone: office formats are zips of XML written out here, and so is the PDF."""

import io
import pathlib
import sys
import tarfile
import zipfile

W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
CORE = ('<cp:coreProperties xmlns:cp="c" xmlns:dc="http://purl.org/dc/elements/1.1/">'
        '<dc:title>{}</dc:title></cp:coreProperties>')


def zipped(members):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in members:
            archive.writestr(zipfile.ZipInfo(name, (2024, 1, 1, 0, 0, 0)), text, zipfile.ZIP_DEFLATED)
    return packed.getvalue()


def docx(body, title="The handbook"):
    styles = (f'<w:styles {W}><w:style w:styleId="berschrift1"><w:name w:val="heading 1"/></w:style>'
              '<w:style w:styleId="U2"><w:name w:val="heading 2"/></w:style>'
              '<w:style w:styleId="Standard"><w:name w:val="Normal"/></w:style></w:styles>')
    return zipped([("word/document.xml", f'<?xml version="1.0"?><w:document {W}><w:body>{body}</w:body></w:document>'),
                   ("word/styles.xml", styles), ("docProps/core.xml", CORE.format(title)),
                   ("word/media/image1.png", "no picture")])


def w_paragraph(text, style=None, before=""):
    properties = f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>' if style else ""
    return f'<w:p>{properties}<w:r>{before}<w:t xml:space="preserve">{text}</w:t></w:r></w:p>'


def make_docx():
    page = "<w:lastRenderedPageBreak/>"
    cell = lambda text: f"<w:tc>{w_paragraph(text)}</w:tc>"
    return docx(w_paragraph("Ovens", "berschrift1") + w_paragraph("Heat the oven to 200 degrees.") +
                w_paragraph("Safety", "U2") + w_paragraph("Wear gloves &amp; goggles.", None, page) +
                f"<w:tbl><w:tr>{cell('Bread')}{cell('40 minutes')}</w:tr><w:tr>{cell('Pie')}{cell('50 minutes')}</w:tr>"
                "</w:tbl><w:p><w:r><w:delText>taken out</w:delText></w:r></w:p>" +
                w_paragraph("Cleaning", "berschrift1", page) + w_paragraph("Use soap."))


def make_odt():
    spaces = 'xmlns:office="o" xmlns:text="t" xmlns:table="b"'
    content = (f'<office:document-content {spaces}><office:body><office:text>'
               '<text:h text:outline-level="1">Gardens</text:h><text:p>Water<text:s text:c="2"/>the roses'
               '<office:annotation><text:p>a remark</text:p></office:annotation> daily.</text:p>'
               '<text:soft-page-break/><text:h text:outline-level="2">Tools</text:h><text:p>A spade,<text:tab/>a rake.'
               '</text:p></office:text></office:body></office:document-content>')
    return zipped([("mimetype", "application/vnd.oasis.opendocument.text"), ("content.xml", content),
                   ("meta.xml", CORE.format("Garden book"))])


def make_pptx():
    spaces = 'xmlns:a="a" xmlns:p="p" xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"'

    def slide(title, text):
        return (f'<p:sld {spaces}><p:sp><p:nvPr><p:ph type="title"/></p:nvPr><a:p><a:r><a:t>{title}</a:t></a:r></a:p>'
                f'</p:sp><p:sp><p:nvPr><p:ph type="body"/></p:nvPr><a:p><a:r><a:t>{text}</a:t></a:r></a:p></p:sp></p:sld>')
    links = ('<Relationships><Relationship Id="rId2" Target="slides/slide1.xml"/>'
             '<Relationship Id="rId3" Target="slides/slide2.xml"/></Relationships>')
    # The second file is shown first.
    show = (f'<p:presentation {spaces}><p:sldIdLst><p:sldId id="256" r:id="rId3"/><p:sldId id="257" r:id="rId2"/>'
            '</p:sldIdLst></p:presentation>')
    return zipped([("ppt/presentation.xml", show), ("ppt/_rels/presentation.xml.rels", links),
                   ("ppt/slides/slide1.xml", slide("Results", "Sales doubled.")),
                   ("ppt/slides/slide2.xml", slide("Plan", "Sell more.")), ("docProps/core.xml", CORE.format("Talk"))])


def make_epub():
    page = "<!DOCTYPE html><html><head><title>x</title></head><body><h1>{}</h1><p>{}</p></body></html>"
    package = ('<package xmlns:dc="d"><metadata><dc:title>Whales</dc:title></metadata><manifest>'
               '<item id="b" href="text/two%20b.xhtml"/><item id="a" href="text/one.xhtml"/></manifest>'
               '<spine><itemref idref="a"/><itemref idref="b"/></spine></package>')
    return zipped([("mimetype", "application/epub+zip"),
                   ("META-INF/container.xml", '<container><rootfiles><rootfile full-path="OPS/book.opf"/></rootfiles></container>'),
                   ("OPS/book.opf", package), ("OPS/text/one.xhtml", page.format("Loomings", "Call me Ishmael.")),
                   ("OPS/text/two b.xhtml", page.format("The Spouter-Inn", "A wide, low entry."))])


def make_pdf(pages):
    """A PDF without compression, one line of Helvetica a page."""
    objects = ["<< /Type /Catalog /Pages 2 0 R >>", None, "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"]
    kids = []
    for text in pages:
        stream = f"BT /F1 12 Tf 72 700 Td ({text}) Tj ET" if text else ""
        objects.append(f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream")
        objects.append(f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {len(objects)} 0 R "
                       "/Resources << /Font << /F1 3 0 R >> >> >>")
        kids.append(f"{len(objects)} 0 R")
    objects[1] = f"<< /Type /Pages /Kids [{' '.join(kids)}] /Count {len(kids)} >>"
    out, places = "%PDF-1.4\n", []
    for number, text in enumerate(objects, 1):
        places.append(len(out))
        out += f"{number} 0 obj\n{text}\nendobj\n"
    table = "".join(f"{place:010d} 00000 n \n" for place in places)
    out += f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}trailer\n<< /Size {len(objects) + 1} /Root 1 0 R >>\n"
    return (out + f"startxref\n{out.index('xref')}\n%%EOF\n").encode("latin-1")


CSV = 'name;price;note\nBread;3,20;"a ""dark"" loaf\nwith seeds"\nPie;4,10;\n\nCake;;sweet\n'
JSONL = ('{"title": "First", "text": "The first record."}\n\nno JSON\n'
         '{"city": "Oslo", "people": 709000, "tags": ["north", "sea"]}\n')


def make_mail():
    """A message in two ways, with words and bodies of several encodings, and attachments: a name in sections and another
    character set, a text of one, a name that was there, a signature, a picture, and a message with one of its own."""
    head = ("From: =?iso-8859-1?Q?J=F6rg_M=FCller?= <j@example.org>\r\nTo: all@example.org\r\n"
            "Subject: =?utf-8?B?S2Fmw7Y=?= =?utf-8?B?dHJpbmtlbg==?=\r\n at noon\r\nDate: Mon, 1 Jan 2024 10:00:00 +0000\r\n"
            'Content-Type: multipart/mixed; boundary="outer"\r\n\r\npreamble\r\n--outer\r\n'
            "Content-Type: multipart/alternative; boundary=inner\r\n\r\n")
    plain = ("--inner\r\nContent-Type: text/plain; charset=koi8-r\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n"
             "=F0=D2=C9=D7=C5=D4, a soft=\r\n break.\r\n")
    rest = ("--inner\r\nContent-Type: text/html\r\n\r\n<p>not <b>this</b>\r\n--inner--\r\n--outer\r\n"
            "Content-Type: text/plain\r\nContent-Disposition: attachment; filename=a.txt\r\n\r\nattached\r\n--outer\r\n"
            "Content-Type: text/csv\r\nContent-Transfer-Encoding: base64\r\nContent-Disposition: attachment;\r\n"
            " filename*0*=utf-8''na%C3%AF; filename*1*=ve%20plan; filename*2=.csv\r\n\r\nayx2CngsMQo=\r\n--outer\r\n"
            "Content-Type: text/plain; charset=koi8-r; name=\"../../a.txt\"\r\nContent-Transfer-Encoding: quoted-printable\r\n"
            "\r\n=F0=D2=C9=D7=C5=D4 again\r\n--outer\r\n"
            "Content-Type: application/pgp-signature; name=signature.asc\r\n\r\nnothing\r\n--outer\r\n"
            "Content-Type: image/png\r\nContent-Disposition: attachment; filename=photo.png\r\n\r\npng\r\n--outer\r\n"
            "Content-Type: message/rfc822\r\n\r\nSubject: Inner\r\nContent-Type: multipart/mixed; boundary=deep\r\n\r\n--deep\r\n"
            "\r\nforwarded\r\n--deep\r\nContent-Disposition: attachment; filename=deep.md\r\n\r\n# Deep mail\r\n--deep--\r\n"
            "--outer--\r\n")
    return (head + plain + rest).encode("ascii")


MBOX = (b"From a@example.org Mon Jan  1 10:00:00 2024\nSubject: First\n\nHello there.\n\nThey went. >From here.\n"
        b"\nFrom b@example.org Tue Jan  2 10:00:00 2024\nSubject: Second\nContent-Type: text/html\n"
        b"Content-Transfer-Encoding: base64\n\nPGgxPkhpPC9oMT48cD5ncmVldGluZ3M=\n")


def make_zip():
    inner = zipped([("deep.md", "# Deep\n\nburied treasure\n")])
    return zipped([("notes/a.md", "# Notes\n\nalpha beta\n"), ("b.txt", "gamma delta\n"), ("inner.zip", inner),
                   ("sheet.csv", "k,v\nx,1\n"), ("picture.png", "png"), (".hidden/c.txt", "hidden"),
                   ("__MACOSX/d.txt", "hidden"), ("../../escape.txt", "outside\n"), ("empty.txt", "")])


def make_tar():
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        member = tarfile.TarInfo("docs/page.html")
        text = b"<h1>Tarred</h1><p>feathered"
        member.size = len(text)
        archive.addfile(member, io.BytesIO(text))
        link = tarfile.TarInfo("docs/link.txt")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    return packed.getvalue()


def nested_zips(depth):
    packed = zipped([("core.txt", "core\n")])
    for i in range(depth):
        packed = zipped([(f"level{i}.zip", packed)])
    return packed


LAUGHS = ('<?xml version="1.0"?><!DOCTYPE l [<!ENTITY a "ha">' +
          "".join(f'<!ENTITY {b} "{f"&{a};" * 10}">' for a, b in zip("abcdefghi", "bcdefghij")) +
          f']><w:document {W}><w:body><w:p><w:r><w:t>&j;</w:t></w:r></w:p></w:body></w:document>')


def good():
    return {"book.docx": make_docx(), "book.odt": make_odt(), "talk.pptx": make_pptx(), "whales.epub": make_epub(),
            "paper.pdf": make_pdf(["Page one tells of apples.", "", "Page three tells of pears."]),
            "prices.csv": CSV.encode(), "records.jsonl": JSONL.encode(), "table.tsv": b"a\tb\n1\t2\n",
            "letter.eml": make_mail(), "box.mbox": MBOX,
            "all.zip": make_zip(), "all.tar.gz": make_tar()}


def hostile():
    return {"bomb.zip": zipped([(f"{i}.txt", b"a" * (8 << 20)) for i in range(40)]),
            "bomb.docx": docx(w_paragraph("a" * (80 << 20))),
            "nested.zip": nested_zips(6),
            "laughs.docx": zipped([("word/document.xml", LAUGHS)]),
            "deep.docx": docx("<w:p>" * 100000), "cut.docx": make_docx()[:400], "text.docx": b"no zip at all",
            "empty.docx": docx(""), "missing.odt": zipped([("meta.xml", "<a/>")]),
            "outside.odt": zipped([("content.xml", '<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]><x><p>&e;</p></x>')]),
            "scan.pdf": make_pdf([""]), "text.pdf": b"no PDF at all", "cut.pdf": make_pdf(["a"])[:60],
            "binary.csv": b"a,b\n1,\0\n", "cut.tar.gz": make_tar()[:40], "spine.epub": zipped([
                ("META-INF/container.xml", '<c><rootfile full-path="../../etc/passwd"/></c>')])}


def seeds():
    """Inputs for tests/fuzz/fuzz_files.c: a byte for the kind, then the parts of a document with 0xff between them."""
    def parts(kind, data, *names):
        archive = zipfile.ZipFile(io.BytesIO(data))
        return bytes([kind]) + b"\xff".join(archive.read(name) for name in names)
    return {"docx": parts(0, make_docx(), "word/document.xml", "word/styles.xml", "docProps/core.xml"),
            "odt": parts(1, make_odt(), "content.xml", "meta.xml"),
            "pptx": parts(2, make_pptx(), "ppt/presentation.xml", "ppt/_rels/presentation.xml.rels", "ppt/slides/slide1.xml"),
            "epub": parts(3, make_epub(), "META-INF/container.xml", "OPS/book.opf", "OPS/text/one.xhtml")
                    .replace(b"OPS/book.opf", b"a/b.opf").replace(b"text/one.xhtml", b"c.xhtml"),
            "csv": b"\x04" + CSV.encode(), "tsv": b"\x05a\tb\n1\t2\n", "jsonl": b"\x06" + JSONL.encode(),
            "markdown": b"\x07---\na: b\n---\n# One ##\n\nTwo\n---\n```\n# x\n```\n", "eml": b"\x09" + make_mail(), "mbox": b"\x0a" + MBOX,
            "rst": b"\x08==\nOne\n==\n\nTwo\n---\n"}


def write(folder, files):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


if __name__ == "__main__":
    write(f"{sys.argv[1]}/good", good())
    write(f"{sys.argv[1]}/hostile", hostile())
    write(f"{sys.argv[1]}/seeds", seeds())
