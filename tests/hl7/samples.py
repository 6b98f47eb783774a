"""Sample messages of our own (invented people), by what they are good for."""

from __future__ import annotations

MSH = r"MSH|^~\&|REG|HOSP|IPF|HUB|20240115093000||"

SAMPLES = {
    "dense admission": MSH + "ADT^A01^ADT_A01|C1|P|2.5.1|||AL|NE||UNICODE UTF-8\r"
    "EVN|A01|20240115093000|||JD^Doe^Jane\r"
    "PID|1||77001^^^HOSP&1.2.3&ISO^MR~999-1^^^SSA^SS||Sample^Ann^B^^Ms^^L~Maid^Ann^^^^^M||19800102|F||2106-3^White^HL70005"
    "|1 Oak St^Apt 2^Springfield^IL^62701^USA^H||^PRN^PH^^^217^5550100~^NET^Internet^a@example.org|||M\r"
    "PD1||||4321^Gray^Tom^^^Dr\r"
    "NK1|1|Sample^Bob|SPO^Spouse^HL70063|1 Oak St^^Springfield|2175550101\r"
    "PV1|1|I|W1^101^2^HOSP^^N^^^3|E|||4321^Gray^Tom|5678^Green^Ida|||||||||||V100^^^HOSP^VN\r"
    "AL1|1|DA|70618^Penicillin^RXNORM|SV|Hives\r"
    "DG1|1||I10^Hypertension^I10C||20240115|A\r"
    "PR1|1||0DTJ4ZZ^Appendectomy^I10P||20240115\r"
    "ROL|1|AD|AT|4321^Gray^Tom\r"
    "IN1|1|PPO^Gold|INS1|Insure Co\rIN2|1|123\rIN1|2|HMO^Blue|INS2|Other Co\r",
    "repetitions": MSH + "ADT^A08|R1|P|2.4\rPID|||1~2~3~~5^^^A||A^B~C^D|||||x~~y\r",
    "subcomponents": MSH + "ADT^A08|S1|P|2.6\rPID|||1^^^N&U&T^^F&G\rOBX|1|CWE|a&b^c||d&e^f&&g~h\r",
    "nulls": MSH + 'ADT^A08|N1|P|2.5\rPID|||1||""^B~""|||""|""&x\r',
    "escapes": MSH
    + "ORU^R01|E1|P|2.5\rOBX|1|FT|c||a\\F\\b\\S\\c\\T\\d\\R\\e\\E\\f\\.br\\g\\X41\\h\\H\\i\\N\\j\\Z1\\\r",
    "odd separators": "MSH#!*?@#REG#HOSP#IPF#HUB#2024##ADT!A04!ADT_A01#O1#P#2.3\rPID###1!!!N@U*2##Odd!Sep\r",
    "two encoding characters": "MSH|^~|REG|HOSP|IPF|HUB|2024||ADT^A04|T1|P|2.1\rPID|||1~2||A^B\r",
    "truncation character": "MSH|^~\\&#|REG|HOSP|IPF|HUB|2024||ADT^A04^ADT_A01|T2|P|2.8\rPID|||1||A^B\r",
    "z segments": MSH + "ADT^A01|Z1|P|2.5\rPID|||1\rZPI|1|own^data\rPV1||I\rIN1|1\rZIN|a\rZZZ\r",
    "unknown trailing fields": MSH + "ADT^A01|U1|P|2.3\rPID|||1" + "|x" * 60 + "\rPV1||I\r",
    "empty fields at the end": MSH + "ADT^A01|M1|P|2.3||||||\rPID|||1||||\rEVN\r",
    "no last line end": MSH + "ADT^A01|L1|P|2.3\rPID|||1",
    "results": MSH
    + "ORU^R01^ORU_R01|O2|P|2.5.1\rPID|1||1\rPV1|1|O\rORC|RE\rOBR|1|||718-7^Hgb^LN\rNTE|1||on the order\r"
    "OBX|1|NM|718-7^Hgb^LN||13.5|g/dL|12-16|N|||F\rNTE|1||on the first\rNTE|2||again\rOBX|2|ST|x||y\r"
    "SPM|1|||BLD\rOBR|2|||2345-7^Glucose^LN\rOBX|1|NM|2345-7||99\r",
    "order": MSH
    + "ORM^O01|M2|P|2.3.1\rPID|||1\rPV1||I\rORC|NW|1\rOBR|1|1\rNTE|1||n\rDG1|1\rOBX|1|ST|q||a\rORC|NW|2\rRXO|1\r",
    "characters": MSH + "ADT^A01|X1|P|2.5\rPID|||1||Müller^Zoë^Łukasz^^李\r",
}
