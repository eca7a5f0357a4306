"""Paragraphs that scans are made of, in four languages. All of it was written for these tests."""

ENGLISH = [
    "The harbour at Oakhurst was dredged in the spring of 1921, and 4,380 tons of silt were carried out to sea on two barges. "
    "The work took eleven weeks, three more than the board had promised, because the older of the barges leaked and had to be "
    "caulked twice. Mr. Quill, who kept the ledger, wrote that nobody was paid for the weeks of waiting.",
    "A lamp that burns with a yellow flame wants air; one that smokes wants a shorter wick. Trim it square, not round, and never "
    "fill it above the mark. The keeper's handbook (second edition, page 47) gives the sizes: 19 mm for the small burner, 32 mm "
    "for the large one, and 5/8 inch for lamps that came from abroad.",
    "\u201cWhat do we owe the people upstream?\u201d asked the chairman. Nobody answered. The question had been put at every meeting since "
    "the flood, and the minutes record it nine times: in March, in April, twice in June, and so on until the winter. By then "
    "the dam had been raised by 2.4 metres and the valley above it emptied of its last five families.",
    "Bread keeps longest when it is wrapped in linen and hung where the air moves. Rye keeps for twelve days, wheat for five, and "
    "a loaf of oats for three at most. If a crust has softened, ten minutes in a hot oven will mend it; a second time it only "
    "dries the crumb. Salt, at 2% of the flour, slows the mould as well.",
    "The committee paid \u00a318 6s. for the survey and a further \u00a34 for the map, which shows every well between the church and the "
    "quarry. Wells marked with a cross had gone bad by 1887. There are thirty-one of them, most on the low ground near the "
    "tannery, and the surveyor's note says plainly why: \u201cthe pits were never lined.\u201d",
    "Of the birds that winter on the flats, the knot is the most numerous and the least noticed. It comes in from the north in "
    "flocks of 500 to 8,000, feeds at the edge of the falling tide, and is gone before the ice breaks. Jackson & Webb counted "
    "62,300 in a single week of January; their method is described in the appendix.",
    "Before the engine is started, check that the drain cocks are open, that the oil stands between the two marks, and that no "
    "tool was left upon the bed plate. Open the valve by a quarter of a turn. When water has ceased to come from the drains, "
    "close them in order, beginning with the one that is farthest from the boiler.",
    "Questions about the lease should be sent to the clerk, Room 12, before the 30th of September. Late letters are read but not "
    "answered. The rent is due on quarter days; tenants who pay a year ahead are given back one part in forty, and those who "
    "keep bees pay nothing for the strip along the hedge.",
]
GERMAN = [
    "Die M\u00fchle am Fu\u00df des H\u00fcgels geh\u00f6rte bis 1908 der Familie Gr\u00f6\u00dfner, die sie f\u00fcr 2.750 Mark an die Gemeinde verkaufte. "
    "Seitdem mahlt dort niemand mehr; das Wehr wurde erh\u00f6ht, und statt des Rades treibt der Bach eine kleine Turbine an, die "
    "das Dorf mit Strom versorgt. \u00dcber die K\u00e4ufer schweigt das Grundbuch.",
    "Wer B\u00e4ume pflanzen m\u00f6chte, tut gut daran, den Boden schon im Herbst vorzubereiten: Steine werden gelesen, die Erde wird zwei "
    "Spaten tief gelockert und mit reifem Kompost vermischt. Junge Obstb\u00e4ume brauchen einen Pfahl, der auf der Seite steht, von "
    "der gew\u00f6hnlich der Wind kommt. Gegossen wird fr\u00fch, niemals in der Mittagshitze.",
    "\u201eSo sp\u00e4t noch unterwegs?\u201c, fragte der F\u00e4hrmann und l\u00f6schte seine Pfeife. Die \u00dcberfahrt kostete damals sechs Groschen, f\u00fcr "
    "M\u00fctter mit Kindern die H\u00e4lfte. Bei Hochwasser wurde gar nicht \u00fcbergesetzt; dann mussten die Reisenden im Gasthaus bleiben, "
    "dessen Wirtin f\u00fcr ihre Kl\u00f6\u00dfe ber\u00fchmt war.",
    "Der Ausschuss tagte am 14. M\u00e4rz von 9 bis 17 Uhr. Es wurde beschlossen, die Br\u00fccke f\u00fcr schwere Fuhrwerke zu sperren, bis die "
    "Gel\u00e4nder erneuert und die Pfeiler gepr\u00fcft sind. Die Kosten von rund 38.400 Euro tr\u00e4gt zu zwei Dritteln der Landkreis, den "
    "Rest bezahlen die \u00f6rtlichen S\u00e4gewerke.",
    "K\u00e4se aus Rohmilch reift in feuchten Kellern bei elf Grad. Die Laibe werden jeden zweiten Tag gewendet und mit Salzwasser "
    "abgerieben, damit die Rinde nicht rei\u00dft. Nach sechs Wochen ist der Teig geschmeidig, nach einem Jahr br\u00f6ckelig und w\u00fcrzig; "
    "dann passt er zu \u00c4pfeln, N\u00fcssen und dunklem Brot.",
    "F\u00fcr die R\u00fcckgabe ausgeliehener B\u00fccher gilt eine Frist von vier Wochen. Wer sie \u00fcberschreitet, zahlt eine Geb\u00fchr von 50 Cent je "
    "Band und Woche. Besch\u00e4digungen sind vor dem Ausleihen zu melden. Zeitschriften, Landkarten und Nachschlagewerke d\u00fcrfen nur "
    "im gro\u00dfen Lesesaal benutzt werden.",
]
FRENCH = [
    "Le vieux moulin, b\u00e2ti en 1764 pr\u00e8s de la rivi\u00e8re, appartenait \u00e0 une famille de drapiers qui l'avait re\u00e7u en h\u00e9ritage. On y "
    "foulait la laine \u00e0 l'aide de maillets de ch\u00eane ; le bruit s'entendait, dit-on, jusqu'\u00e0 l'\u00e9glise. Apr\u00e8s l'inondation de f\u00e9vrier, "
    "il ne resta que la roue et quelques pierres.",
    "Pour conserver les pommes tout l'hiver, choisissez des fruits sains, cueillis avant les premi\u00e8res gel\u00e9es, et rangez-les sur de "
    "la paille, le p\u00e9doncule vers le haut. La cave doit rester fra\u00eeche, entre 4 et 7 degr\u00e9s, et l'on \u00f4tera d\u00e8s que possible "
    "celles qui se tachent. No\u00ebl pass\u00e9, elles seront plus sucr\u00e9es.",
    "\u00ab Combien de b\u0153ufs avez-vous vendus ? \u00bb demanda le greffier. \u00ab Douze, r\u00e9pondit l'homme, et \u00e0 perte. \u00bb Le proc\u00e8s-verbal, long de "
    "neuf pages, ne pr\u00e9cise ni le prix ni l'acheteur. Peut-\u00eatre s'agissait-il du ma\u00eetre de poste, dont le fr\u00e8re tenait d\u00e9j\u00e0 "
    "l'auberge et les \u00e9curies du ch\u00e2teau.",
    "La biblioth\u00e8que est ouverte du mardi au samedi, de 10 h \u00e0 18 h 30. Chaque lecteur peut emprunter cinq ouvrages \u00e0 la fois, pour "
    "une dur\u00e9e de trois semaines. En cas de retard, une p\u00e9nalit\u00e9 de 0,20 euro par jour est per\u00e7ue ; elle est doubl\u00e9e pendant "
    "l'\u00e9t\u00e9, o\u00f9 les demandes sont nombreuses.",
    "Le phare fut allum\u00e9 pour la premi\u00e8re fois le 3 ao\u00fbt 1839. Sa lanterne, haute de 26 m\u00e8tres, portait \u00e0 vingt milles par temps "
    "clair. Les gardiens se relayaient toutes les six heures et notaient dans un cahier l'\u00e9tat de la mer, la force du vent et le "
    "passage des go\u00e9lettes charg\u00e9es de bois.",
    "Quant aux r\u00e9coltes, l'ann\u00e9e fut m\u00e9diocre : les bl\u00e9s vers\u00e8rent sous la gr\u00eale, les vignes souffrirent d'un \u00e9t\u00e9 trop sec, et seul "
    "le ma\u00efs donna autant qu'esp\u00e9r\u00e9. Le conseil d\u00e9cida d'all\u00e9ger l'imp\u00f4t d'un quart et d'acheter au loin de quoi nourrir les "
    "b\u00eates jusqu'au mois de mai.",
]
POLISH = [
    "M\u0142yn nad rzek\u0105 zbudowano w 1836 roku z d\u0119bowych bali, kt\u00f3re sp\u0142awiono a\u017c z puszczy. Przez sze\u015b\u0107dziesi\u0105t lat nale\u017ca\u0142 do rodziny "
    "\u0141\u0119ckich, p\u00f3\u017aniej przej\u0119\u0142a go gmina. Ko\u0142o wodne zatrzyma\u0142o si\u0119 na zawsze po wielkiej powodzi, gdy \u015bluza run\u0119\u0142a, a \u017cwir zasypa\u0142 "
    "kana\u0142 na d\u0142ugo\u015bci 120 metr\u00f3w.",
    "Grzyby suszy si\u0119 w cieniu, nanizane na ni\u0107, tak by si\u0119 nie styka\u0142y. Najlepsze s\u0105 m\u0142ode borowiki o j\u0119drnych trzonach; starsze nale\u017cy "
    "pokroi\u0107 w cienkie plastry. Po trzech dniach przek\u0142ada si\u0119 je do p\u0142\u00f3ciennych work\u00f3w i trzyma z dala od \u017ar\u00f3de\u0142 wilgoci, bo \u0142atwo "
    "ple\u015bniej\u0105.",
    "\u201eCzy\u017c nie m\u00f3wi\u0142em, \u017ce l\u00f3d jest za cienki?\u201d \u2014 zapyta\u0142 rybak, wyci\u0105gaj\u0105c sanie na brzeg. Nikt mu nie odpowiedzia\u0142. Ko\u0144 dr\u017ca\u0142 z "
    "zimna, a na je\u017adzie, kt\u00f3r\u0105 zwyk\u0142o si\u0119 skraca\u0107 przez jezioro, czernia\u0142a d\u0142uga szczelina. Tego dnia do miasteczka dotarli dopiero o "
    "zmierzchu.",
    "Czytelnia jest czynna od wtorku do soboty w godzinach od 9 do 17. Jednorazowo mo\u017cna wypo\u017cyczy\u0107 pi\u0119\u0107 ksi\u0105\u017cek na okres czterech "
    "tygodni. Za ka\u017cdy dzie\u0144 zw\u0142oki pobiera si\u0119 op\u0142at\u0119 w wysoko\u015bci 0,30 z\u0142. Czasopisma, mapy i s\u0142owniki udost\u0119pnia si\u0119 wy\u0142\u0105cznie na "
    "miejscu.",
    "W\u00f3jt o\u015bwiadczy\u0142, \u017ce most zostanie zamkni\u0119ty dla ci\u0119\u017ckich woz\u00f3w a\u017c do ko\u0144ca wrze\u015bnia. Koszt naprawy, oszacowany na 46 800 z\u0142otych, "
    "poniesie w po\u0142owie powiat, a w po\u0142owie w\u0142a\u015bciciele pobliskich tartak\u00f3w. Mieszka\u0144cy \u017c\u0105daj\u0105, by na ten czas uruchomiono prom "
    "poni\u017cej przystani.",
    "Zesz\u0142oroczne zbiory by\u0142y s\u0142abe: grad zniszczy\u0142 j\u0119czmie\u0144, susza os\u0142abi\u0142a sady, a jedynie len da\u0142 tyle, ile si\u0119 spodziewano. Rada "
    "postanowi\u0142a obni\u017cy\u0107 podatek o jedn\u0105 czwart\u0105 i zakupi\u0107 pasz\u0119 u s\u0105siad\u00f3w, \u017ceby wy\u017cywi\u0107 byd\u0142o do wiosny.",
]
LANGUAGES = {"eng": ENGLISH, "deu": GERMAN, "fra": FRENCH, "pol": POLISH}

TABLES = [
    (["Boat", "Weekday", "Weekend", "Deposit"],
     [["Kayak", "180", "290", "50"], ["Canoe", "210", "335", "75"], ["Dinghy", "640", "905", "120"], ["Punt", "95", "140", "30"]]),
    (["Station", "2019", "2020", "2021", "Change"],
     [["Oakhurst", "28,608", "61,937", "59,114", "-4.6%"], ["Ferry Hill", "7,205", "8,814", "9,030", "+2.5%"],
      ["Quarry Road", "12,480", "11,972", "13,655", "+14.1%"]]),
    (["Sample", "Depth (m)", "Salt (g/l)", "pH", "Remark"],
     [["A-17", "2.5", "31.4", "8.1", "clear"], ["B-03", "11.0", "33.9", "7.9", "some silt"], ["B-04", "18.5", "34.2", "7.8", "clear"],
      ["C-22", "40.0", "35.0", "7.7", "dark, cold"]]),
    (["Item", "Quantity", "Unit price", "Total"],
     [["Oak beam", "14", "38.50", "539.00"], ["Iron bolt", "260", "0.35", "91.00"], ["Roof slate", "1,900", "1.12", "2,128.00"],
      ["Lime (sack)", "44", "6.80", "299.20"], ["Carriage", "1", "75.00", "75.00"]]),
]
