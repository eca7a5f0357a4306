"""tests/reading/workbooks.py: makes XLSX and ODS files by hand, with the odd things that other programs write.

A sheet is a dict: name, rows (lists of values; None is no cell), and what else it has: merges (["A1:B1"]), hidden (True),
hidden_rows, hidden_columns (numbers from 1), tables ([(name, range)]), comments ({"B2": "text"}), formats ({"B2": code}
or {"B": code}). A value is a string, a number, a bool, a datetime.date, or a dict with the XML that a cell has inside
("xml") and its type ("t").
"""

import datetime
import io
import zipfile
from xml.sax.saxutils import escape, quoteattr

MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
STRICT = "http://purl.oclc.org/ooxml/spreadsheetml/main"
RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
PACKAGE = "http://schemas.openxmlformats.org/package/2006/relationships"


def letters(column):
    text = ""
    while column > 0:
        column, digit = divmod(column - 1, 26)
        text = chr(65 + digit) + text
    return text


def address(row, column):
    return f"{letters(column)}{row}"


def days(date, from_1904=False):
    """The number that a spreadsheet keeps for a date."""
    if isinstance(date, datetime.datetime):
        whole = days(date.date(), from_1904)
        return whole + (date.hour * 3600 + date.minute * 60 + date.second) / 86400
    first = datetime.date(1904, 1, 1) if from_1904 else datetime.date(1899, 12, 30)
    number = (date - first).days
    return number if from_1904 or number > 60 else number - 1


class Xlsx:
    """One file. `write` gives its bytes."""

    def __init__(self, sheets, from_1904=False, prefix="", strict=False, inline=False, addresses=True, absolute=False,
                 not_computed=False, styles=True, more=None):
        self.sheets, self.from_1904, self.prefix, self.inline = sheets, from_1904, prefix, inline
        self.namespace = STRICT if strict else MAIN
        self.addresses, self.absolute, self.not_computed, self.styles = addresses, absolute, not_computed, styles
        self.more = more or {}
        self.strings, self.string_list = {}, []
        self.codes = {"General": 0}  # of formats: the style's number

    def tag(self, name):
        return f"{self.prefix}:{name}" if self.prefix else name

    def root(self, name, inner):
        bound = f"xmlns:{self.prefix}" if self.prefix else "xmlns"
        return (f'<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n<{self.tag(name)} {bound}="{self.namespace}" '
                f'xmlns:r="{RELATIONS}">{inner}</{self.tag(name)}>')

    def style(self, code, bold=False):
        key = (code, bold)
        return self.codes.setdefault(key if bold else code, len(self.codes))

    def string(self, text):
        if text not in self.strings:
            self.strings[text] = len(self.string_list)
            self.string_list.append(text)
        return self.strings[text]

    def cell(self, value, row, column, sheet):
        tag = self.tag
        formats = sheet.get("formats", {})
        code = formats.get(address(row, column), formats.get(letters(column), None))
        bold = address(row, column) in sheet.get("bold", ()) or row in sheet.get("bold_rows", ())
        if isinstance(value, datetime.date) and code is None:
            code = "yyyy-mm-dd"
        style = self.style(code or "General", bold)
        place = f' r="{address(row, column)}"' if self.addresses else ""
        attributes = place + (f' s="{style}"' if style else "")
        if value is None:
            return "" if self.addresses else f"<{tag('c')}/>"
        if isinstance(value, dict):
            kind = f' t="{value["t"]}"' if "t" in value else ""
            return f"<{tag('c')}{attributes}{kind}>{value['xml']}</{tag('c')}>"
        if isinstance(value, bool):
            return f'<{tag("c")}{attributes} t="b"><{tag("v")}>{int(value)}</{tag("v")}></{tag("c")}>'
        if isinstance(value, datetime.date):
            value = days(value, self.from_1904)
        if isinstance(value, (int, float)):
            return f"<{tag('c')}{attributes}><{tag('v')}>{value!r}</{tag('v')}></{tag('c')}>"
        if self.inline:
            return (f'<{tag("c")}{attributes} t="inlineStr"><{tag("is")}><{tag("t")} xml:space="preserve">{escape(value)}'
                    f'</{tag("t")}></{tag("is")}></{tag("c")}>')
        return f'<{tag("c")}{attributes} t="s"><{tag("v")}>{self.string(value)}</{tag("v")}></{tag("c")}>'

    def sheet_xml(self, sheet):
        tag, rows = self.tag, []
        for i, row in enumerate(sheet["rows"], 1):
            cells = "".join(self.cell(v, i, j, sheet) for j, v in enumerate(row, 1))
            place = f' r="{i}"' if self.addresses else ""
            hidden = ' hidden="1"' if i in sheet.get("hidden_rows", ()) else ""
            if cells or not self.addresses:
                rows.append(f"<{tag('row')}{place}{hidden}>{cells}</{tag('row')}>")
        columns = "".join(f'<{tag("col")} min="{c}" max="{c}" hidden="1" width="0"/>'
                          for c in sheet.get("hidden_columns", ()))
        columns = f"<{tag('cols')}>{columns}</{tag('cols')}>" if columns else ""
        merges = "".join(f'<{tag("mergeCell")} ref="{m}"/>' for m in sheet.get("merges", ()))
        merges = f"<{tag('mergeCells')}>{merges}</{tag('mergeCells')}>" if merges else ""
        dimension = f'<{tag("dimension")} ref="A1:XFD1048576"/>'
        return self.root("worksheet", f"{dimension}{columns}<{tag('sheetData')}>{''.join(rows)}</{tag('sheetData')}>{merges}")

    def styles_xml(self):
        codes, formats = [c for c in self.codes], ""
        for i, code in enumerate(codes):
            text = code[0] if isinstance(code, tuple) else code
            if text != "General":
                formats += f'<numFmt numFmtId="{164 + i}" formatCode={quoteattr(text)}/>'
        cells = ""
        for i, code in enumerate(codes):
            text, bold = code if isinstance(code, tuple) else (code, False)
            cells += f'<xf numFmtId="{0 if text == "General" else 164 + i}" fontId="{int(bold)}" fillId="0"/>'
        return (f'<styleSheet xmlns="{self.namespace}"><numFmts>{formats}</numFmts><fonts><font/><font><b/></font></fonts>'
                f'<fills><fill><patternFill patternType="none"/></fill></fills><cellStyleXfs><xf numFmtId="14"/></cellStyleXfs>'
                f"<cellXfs>{cells}</cellXfs></styleSheet>")

    def write(self):
        parts, base = {}, "/xl/" if self.absolute else ""
        links, names, types = "", "", ""
        for i, sheet in enumerate(self.sheets, 1):
            # No file is called as one would guess.
            part = f"worksheets/blatt{len(self.sheets) - i + 7}.xml"
            parts[f"xl/{part}"] = self.sheet_xml(sheet)
            links += f'<Relationship Id="rId{i + 20}" Type="{RELATIONS}/worksheet" Target="{base}{part}"/>'
            state = sheet.get("hidden") and f' state="{sheet["hidden"] if isinstance(sheet["hidden"], str) else "hidden"}"'
            names += f'<{self.tag("sheet")} name={quoteattr(sheet["name"])} sheetId="{i}"{state or ""} r:id="rId{i + 20}"/>'
            beside = ""
            for n, (name, place) in enumerate(sheet.get("tables", ())):
                parts[f"xl/tables/t{i}_{n}.xml"] = self.root("table", "").replace(
                    f"<{self.tag('table')} ", f'<{self.tag("table")} id="{n + 1}" name="{name}" displayName="{name}" ref="{place}" ', 1)
                beside += f'<Relationship Id="t{n}" Type="{RELATIONS}/table" Target="../tables/t{i}_{n}.xml"/>'
            if sheet.get("comments"):
                inner = "".join(f'<{self.tag("comment")} ref="{place}" authorId="0"><{self.tag("text")}><{self.tag("r")}><{self.tag("t")}>'
                                f'{escape(text)}</{self.tag("t")}></{self.tag("r")}></{self.tag("text")}></{self.tag("comment")}>'
                                for place, text in sheet["comments"].items())
                parts[f"xl/comments{i}.xml"] = self.root("comments", f"<{self.tag('commentList')}>{inner}</{self.tag('commentList')}>")
                beside += f'<Relationship Id="c" Type="{RELATIONS}/comments" Target="/xl/comments{i}.xml"/>'
            if beside:
                folder, file = part.rsplit("/", 1)
                parts[f"xl/{folder}/_rels/{file}.rels"] = f'<Relationships xmlns="{PACKAGE}">{beside}</Relationships>'
        links += f'<Relationship Id="s1" Type="{RELATIONS}/sharedStrings" Target="{base}sharedStrings.xml"/>'
        links += f'<Relationship Id="s2" Type="{RELATIONS}/styles" Target="{base}styles.xml"/>'
        strings = "".join(s["xml"] if isinstance(s, dict) else f'<{self.tag("si")}><{self.tag("t")} xml:space="preserve">{escape(s)}</{self.tag("t")}></{self.tag("si")}>'
                          for s in self.string_list)
        workbook = (f'<{self.tag("workbookPr")} date1904="{int(self.from_1904)}"/><{self.tag("sheets")}>{names}</{self.tag("sheets")}>'
                    + (f'<{self.tag("calcPr")} calcId="1" fullCalcOnLoad="1"/>' if self.not_computed else ""))
        parts["xl/workbook.xml"] = self.root("workbook", workbook)
        parts["xl/_rels/workbook.xml.rels"] = f'<Relationships xmlns="{PACKAGE}">{links}</Relationships>'
        parts["xl/sharedStrings.xml"] = self.root("sst", strings)
        if self.styles:
            parts["xl/styles.xml"] = self.styles_xml()
        parts["_rels/.rels"] = (f'<Relationships xmlns="{PACKAGE}"><Relationship Id="r" Type="{RELATIONS}/officeDocument" '
                                f'Target="xl/workbook.xml"/></Relationships>')
        parts.update(self.more)
        return zipped(parts)


def xlsx(sheets, **options):
    return Xlsx(sheets, **options).write()


def zipped(parts, first=None):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        if first:
            archive.writestr(zipfile.ZipInfo(first[0]), first[1])
        for name, text in parts.items():
            archive.writestr(name, text)
    return out.getvalue()


# OpenDocument.

SPACES = " ".join(f'xmlns:{p}="urn:oasis:names:tc:opendocument:xmlns:{u}:1.0"' for p, u in (
    ("office", "office"), ("table", "table"), ("text", "text"), ("style", "style"), ("draw", "drawing"),
    ("presentation", "presentation"), ("manifest", "manifest"))) + ' xmlns:fo="urn:oasis:names:tc:opendocument:xmlns:xsl-fo-compatible:1.0"' \
    ' xmlns:dc="http://purl.org/dc/elements/1.1/"'


def ods_cell(value):
    """A value as a cell, or a dict with its XML ("xml") and its attributes ("with")."""
    if value is None:
        return "<table:table-cell/>"
    if isinstance(value, dict):
        tag = value.get("tag", "table:table-cell")
        return f"<{tag} {value.get('with', '')}>{value.get('xml', '')}</{tag}>"
    if isinstance(value, bool):
        return (f'<table:table-cell office:value-type="boolean" office:boolean-value="{str(value).lower()}">'
                f"<text:p>{str(value).upper()}</text:p></table:table-cell>")
    if isinstance(value, datetime.date):
        return (f'<table:table-cell office:value-type="date" office:date-value="{value.isoformat()}"><text:p>'
                f"{value.strftime('%d.%m.%y')}</text:p></table:table-cell>")
    if isinstance(value, (int, float)):
        return (f'<table:table-cell office:value-type="float" office:value="{value!r}"><text:p>{value!r}</text:p>'
                f"</table:table-cell>")
    return f'<table:table-cell office:value-type="string"><text:p>{escape(value)}</text:p></table:table-cell>'


def ods_content(sheets, styles=""):
    tables = ""
    for sheet in sheets:
        style = ' table:style-name="hidden"' if sheet.get("hidden") else ""
        rows = ""
        for i, row in enumerate(sheet["rows"], 1):
            hidden = ' table:visibility="collapse"' if i in sheet.get("hidden_rows", ()) else ""
            rows += f"<table:table-row{hidden}>{''.join(map(ods_cell, row))}</table:table-row>"
        columns = "".join(f'<table:table-column table:visibility="{"collapse" if c in sheet.get("hidden_columns", ()) else "visible"}"/>'
                          for c in range(1, 30))
        rows += '<table:table-row table:number-rows-repeated="1048000"><table:table-cell table:number-columns-repeated="16384"/></table:table-row>'
        tables += f"<table:table table:name={quoteattr(sheet['name'])}{style}>{columns}{rows}</table:table>"
    return (f'<?xml version="1.0" encoding="UTF-8"?><office:document-content {SPACES}><office:automatic-styles>'
            f'<style:style style:name="hidden" style:family="table"><style:table-properties table:display="false"/></style:style>'
            f"{styles}</office:automatic-styles><office:body><office:spreadsheet>{tables}</office:spreadsheet></office:body>"
            f"</office:document-content>")


def odf(kind, content, more=None):
    return zipped({"content.xml": content, **(more or {})}, first=("mimetype", f"application/vnd.oasis.opendocument.{kind}"))


def ods(sheets, **options):
    return odf("spreadsheet", ods_content(sheets, **options))
