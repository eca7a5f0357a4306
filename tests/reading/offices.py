"""tests/reading/offices.py: makes DOCX, ODT, ODP and PPTX files by hand."""

from workbooks import PACKAGE, RELATIONS, SPACES, odf, zipped

W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main" xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"'
A = 'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main" xmlns:p="http://schemas.openxmlformats.org/presentationml/2006/main" ' \
    f'xmlns:r="{RELATIONS}"'


def relationships(*links):
    return f'<Relationships xmlns="{PACKAGE}">' + "".join(
        f'<Relationship Id="{i}" Type="{RELATIONS}/{kind}" Target="{target}"/>' for i, kind, target in links) + "</Relationships>"


def p(text="", style=None, number=None, before="", inside=""):
    """A paragraph; number: (numId, ilvl)."""
    facts = f'<w:pStyle w:val="{style}"/>' if style else ""
    facts += f'<w:numPr><w:ilvl w:val="{number[1]}"/><w:numId w:val="{number[0]}"/></w:numPr>' if number else ""
    run = f'<w:r><w:t xml:space="preserve">{text}</w:t>{inside}</w:r>' if text or inside else ""
    return f"<w:p>{f'<w:pPr>{facts}</w:pPr>' if facts else ''}{before}{run}</w:p>"


def tc(text, span=1, merge=None):
    facts = (f'<w:gridSpan w:val="{span}"/>' if span > 1 else "") + (
        "" if merge is None else '<w:vMerge w:val="restart"/>' if merge == "restart" else "<w:vMerge/>")
    return f"<w:tc><w:tcPr>{facts}</w:tcPr>{text if text.startswith('<') else p(text)}</w:tc>"


def tr(*cells, head=False):
    return f"<w:tr>{'<w:trPr><w:tblHeader/></w:trPr>' if head else ''}{''.join(c if c.startswith('<w:tc') else tc(c) for c in cells)}</w:tr>"


def tbl(*rows):
    return f"<w:tbl>{''.join(rows)}</w:tbl>"


STYLES = (f'<w:styles {W}><w:style w:styleId="berschrift1"><w:name w:val="heading 1"/></w:style>'
          '<w:style w:styleId="Mine"><w:name w:val="Chapter"/><w:basedOn w:val="berschrift1"/></w:style>'
          '<w:style w:styleId="Toc"><w:name w:val="toc 1"/></w:style></w:styles>')
NUMBERING = (f'<w:numbering {W}><w:abstractNum w:abstractNumId="7">'
             '<w:lvl w:ilvl="0"><w:start w:val="1"/><w:numFmt w:val="decimal"/><w:lvlText w:val="%1."/></w:lvl>'
             '<w:lvl w:ilvl="1"><w:start w:val="1"/><w:numFmt w:val="lowerLetter"/><w:lvlText w:val="%1.%2)"/></w:lvl></w:abstractNum>'
             '<w:abstractNum w:abstractNumId="8"><w:lvl w:ilvl="0"><w:numFmt w:val="bullet"/><w:lvlText w:val="x"/></w:lvl></w:abstractNum>'
             '<w:num w:numId="1"><w:abstractNumId w:val="7"/></w:num><w:num w:numId="2"><w:abstractNumId w:val="8"/></w:num></w:numbering>')
NOTES = (f'<w:footnotes {W}><w:footnote w:type="separator" w:id="-1"><w:p><w:r><w:t>line</w:t></w:r></w:p></w:footnote>'
         '<w:footnote w:id="2"><w:p><w:r><w:t>Counted at low tide.</w:t></w:r></w:p></w:footnote></w:footnotes>')


def docx(body, **parts):
    return zipped({"word/document.xml": f'<?xml version="1.0"?><w:document {W}><w:body>{body}</w:body></w:document>',
                   "word/styles.xml": STYLES, "word/numbering.xml": NUMBERING, "word/footnotes.xml": NOTES,
                   "_rels/.rels": relationships(("r", "officeDocument", "word/document.xml")), **parts})


def odt(text, styles=""):
    return odf("text", f"<office:document-content {SPACES}><office:automatic-styles>{styles}</office:automatic-styles><office:body>"
               f"<office:text>{text}</office:text></office:body></office:document-content>")


def odp(pages):
    return odf("presentation", f"<office:document-content {SPACES}><office:body><office:presentation>{pages}</office:presentation>"
               "</office:body></office:document-content>")


def shape(kind, *lines):
    inner = "".join(f"<a:p><a:r><a:t>{line}</a:t></a:r></a:p>" for line in lines)
    place = f'<p:nvSpPr><p:nvPr><p:ph type="{kind}"/></p:nvPr></p:nvSpPr>' if kind else ""
    return f"<p:sp>{place}<p:txBody>{inner}</p:txBody></p:sp>"


def pptx(slides):
    """Each: (shapes, notes or None, hidden)."""
    parts, links, order = {}, [], ""
    for i, (shapes, notes, hidden) in enumerate(slides, 1):
        part = f"slides/s{len(slides) - i}.xml"
        parts[f"ppt/{part}"] = f'<p:sld {A}{" show=" + chr(34) + "0" + chr(34) if hidden else ""}><p:cSld><p:spTree>{shapes}</p:spTree></p:cSld></p:sld>'
        links.append((f"r{i}", "slide", part))
        order += f'<p:sldId id="{255 + i}" r:id="r{i}"/>'
        if notes:
            parts[f"ppt/notesSlides/n{i}.xml"] = f"<p:notes {A}>{shape('sldImg', 'picture')}{shape('body', notes)}{shape('sldNum', '4')}</p:notes>"
            parts[f"ppt/slides/_rels/s{len(slides) - i}.xml.rels"] = relationships(("n", "notesSlide", f"../notesSlides/n{i}.xml"))
    parts["ppt/presentation.xml"] = f"<p:presentation {A}><p:sldIdLst>{order}</p:sldIdLst></p:presentation>"
    parts["ppt/_rels/presentation.xml.rels"] = relationships(*links)
    parts["_rels/.rels"] = relationships(("r", "officeDocument", "ppt/presentation.xml"))
    return zipped(parts)


def rtf(body, head=""):
    return ("{\\rtf1\\ansi\\ansicpg1250\\deff0{\\fonttbl{\\f0\\fcharset0 Arial;}{\\f1\\fcharset204 Cyr;}{\\f2\\fcharset128 Jap;}}"
            "{\\colortbl;\\red0\\green0\\blue0;}{\\stylesheet{\\s0 Normal;}{\\s1\\b heading 1;}{\\*\\cs10 Default;}}"
            "{\\info{\\title The log}{\\author nobody}}" + head + body + "}").encode("latin-1")
