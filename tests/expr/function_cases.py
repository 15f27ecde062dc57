"""A batch of rows that break naive code, and calls of every function on it."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import re
from typing import Any

import pyarrow as pa

NAN, INF = math.nan, math.inf
D = decimal.Decimal
UTC = dt.UTC
TEXTS = [
    *(
        "abc",
        "",
        "  padded ",
        "ß",
        "İstanbul",
        "ﬁn",
        "e\u0301clair",
        "👩‍👩‍👧 family",
        "xxaxx",
        "a-b-c",
        "\u00a0nbsp\u3000",
    ),
    *("ΑΣ", "line\nbreak", "a.b*c", "2020-02-29", "ǅ", "%_%", "éé", "ABC", None, "\ttab"),
]
DAYS = [dt.date(1970, 1, 1), dt.date(1969, 12, 31), dt.date(2020, 2, 29), dt.date(2024, 12, 30), dt.date(1900, 2, 28)]
DAYS += [dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(2021, 1, 3), dt.date(2000, 1, 31), None]
MOMENTS = [
    dt.datetime(1970, 1, 1),
    dt.datetime(1969, 12, 31, 23, 59, 59, 999999),
    dt.datetime(2020, 2, 29, 12, 30, 15, 123456),
    dt.datetime(2023, 3, 31, 8, 0, 0, 500),
    dt.datetime(1883, 11, 18, 12, 3, 57),
    dt.datetime(2021, 1, 3, 0, 0, 1),
    dt.datetime(1, 1, 1, 5),
    dt.datetime(9999, 12, 31, 23, 59, 59, 999999),
    dt.datetime(2000, 1, 31, 23, 0),
    None,
]
FLOATS = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    1.5,
    2.5,
    2.675,
    1e-300,
    1e300,
    NAN,
    INF,
    -INF,
    123456.789,
    -7.25,
    0.49999999999999994,
]
FLOATS += [4503599627370497.5, None, 8.0, 100.0]
INTS = [0, 1, -1, 2, 3, 7, -7, 100, 127, None, 64, 5]
ROWS = 40


def cycle(values: list[Any], step: int = 1) -> list[Any]:
    return [values[row * step % len(values)] for row in range(ROWS)]


BATCH = pa.record_batch(
    {
        "s": pa.array(cycle(TEXTS), pa.string()),
        "s2": pa.array(cycle(["a", "", "b", "xx", None, "é", "-", "ß", " "]), pa.large_string()),
        "word": pa.array(cycle(TEXTS, 3), pa.string_view()),
        "n": pa.array(cycle([0, 1, 2, 3, -1, -2, None, 5]), pa.int64()),
        "i8": pa.array(cycle(INTS), pa.int8()),
        "i": pa.array(cycle(INTS, 5), pa.int32()),
        "b": pa.array(cycle([*INTS, 2**40, -(2**40)]), pa.int64()),
        "u": pa.array(cycle([0, 1, 255, None, 7]), pa.uint8()),
        "u64": pa.array(cycle([0, 1, 2**64 - 1, None, 7]), pa.uint64()),
        "x": pa.array(cycle(FLOATS), pa.float64()),
        "y": pa.array(cycle(FLOATS, 5), pa.float64()),
        "pos": pa.array(cycle([0.5, 1.0, 2.0, 1e300, INF, NAN, None, 1e-300]), pa.float64()),
        "f": pa.array(cycle([0.0, -0.0, 0.5, 2.5, -1.5, NAN, INF, None, 16777216.0, 0.1]), pa.float32()),
        "m": pa.array(
            cycle([D("0.000"), D("12.345"), D("-12.345"), D("0.500"), None, D("999999.999")]), pa.decimal128(9, 3)
        ),
        "m38": pa.array(cycle([D("1.5000"), D("-12345678901234567890.1250"), None]), pa.decimal128(38, 4)),
        "ok": pa.array(cycle([True, False, None])),
        "d": pa.array(cycle(DAYS), pa.date32()),
        "d2": pa.array(cycle(DAYS, 3), pa.date32()),
        "ts": pa.array(cycle(MOMENTS), pa.timestamp("us")),
        "ts2": pa.array(cycle(MOMENTS, 3), pa.timestamp("us")),
        "tsn": pa.array(cycle([0, 1582979415123456789, -1, None]), pa.timestamp("ns")),
        "tz": pa.array(
            [None if each is None else each.replace(tzinfo=UTC) for each in cycle(MOMENTS)], pa.timestamp("us", "UTC")
        ),
        "tzp": pa.array([0, None, -1, 1582979415123456] * 10, pa.timestamp("us", "Europe/Paris")),
        "t": pa.array(cycle([0, 45015000005, 86399999999, None]), pa.time64("us")),
        "span": pa.array(cycle([0, 90_061_000_001, -5, None, 86_400_000_000]), pa.duration("us")),
        "bin": pa.array(cycle([b"", b"ab", b"\xff", None]), pa.binary()),
        "li": pa.array(cycle([[1, 2, 3], [], None, [None], [7, None, 7]]), pa.list_(pa.int64())),
        "li2": pa.array(cycle([[1, 2, 3], [4], None]), pa.list_(pa.int32())),
        "lf": pa.array(cycle([[1.0, NAN], [-0.0], [], None, [None, INF]]), pa.list_(pa.float64())),
        "lt": pa.array(cycle([["a", "b"], [None], [], None, ["é", "ß", "a"]]), pa.large_list(pa.string())),
        "fixed": pa.array(cycle([[1, 2], None, [3, None]]), pa.list_(pa.int32(), 2)),
        "nested": pa.array(cycle([[["a"], []], None, [None, ["x", "y"]]]), pa.list_(pa.list_(pa.string()))),
        "st": pa.array(
            cycle([{"a": 1, "B": "x", "in": {"z": 1.5}}, None, {"a": None, "B": "", "in": None}]),
            pa.struct([("a", pa.int64()), ("B", pa.string()), ("in", pa.struct([("z", pa.float64())]))]),
        ),
        "ls": pa.array(cycle([[{"k": 1}], [], None, [None, {"k": 2}]]), pa.list_(pa.struct([("k", pa.int32())]))),
        "mp": pa.array(cycle([[("a", 1), ("b", None)], [], None]), pa.map_(pa.string(), pa.int64())),
        "mi": pa.array(cycle([[(1, "one")], [(2, "two"), (3, "three")], None]), pa.map_(pa.int32(), pa.string())),
    }
)

# Texts per function; each is judged by DuckDB on the batch, by the scalar path and as a constant.
_CALLS = r"""
lower: lower(s) ; lower(word) ; lcase(s) ; lower('ÄB')
upper: upper(s) ; upper(word) ; ucase(s)
trim: trim(s) ; trim(s, 'x') ; trim(s, s2) ; trim(both 'xa' from s) ; trim(s, '') ; trim(word)
ltrim: ltrim(s) ; ltrim(s, 'xa') ; trim(leading 'x' from s) ; ltrim(s, s2)
rtrim: rtrim(s) ; rtrim(s, 'xa') ; trim(trailing 'x' from s)
length: length(s) ; len(s) ; char_length(s) ; character_length(s2) ; len(li) ; length(lt) ; len(fixed) ;
    len(nested)
array_length: array_length(li) ; array_length(fixed)
strlen: strlen(s) ; strlen(s2)
substring: substring(s, 2) ; substr(s, 2, 2) ; substring(s from 2 for 3) ; substr(s, n) ; substr(s, n, 2) ;
    substr(s, -2, n) ; substr(s, 0, 2) ; substr(word, 1, 0) ; substring(s, 2, -1) ;
    substr(s, -5, 3) ; substr(s, -100, 99) ; substr(s, 0, -1) ; substr(s, n, n - 2)
left: left(s, 2) ; left(s, n) ; left(s, -1) ; left(s, 0) ; left(word, -100) ; left(s, 100)
right: right(s, 2) ; right(s, n) ; right(s, -1) ; right(s, 0) ; right(word, -100) ; right(s, 100)
replace: replace(s, 'a', 'é') ; replace(s, s2, 'X') ; replace(s, '', 'x') ; replace(s, 'x', '') ;
    replace(s, 'a', s2)
translate: translate(s, 'abc', 'xy') ; translate(s, s2, 'é')
concat: concat(s, s2) ; concat(s, i, x, d) ; concat(s) ; concat(null, s) ; concat(li, li2) ; concat(li) ;
    concat(ok, m) ; concat(bin)
concat_ws: concat_ws('-', s, s2, i) ; concat_ws(s2, s, 'x') ; concat_ws('-', null, null)
starts_with: starts_with(s, 'a') ; prefix(s, s2) ; s ^@ 'x' ; starts_with(s, '')
ends_with: ends_with(s, 'c') ; suffix(s, s2) ; ends_with(s, '')
contains: contains(s, 'b') ; contains(s, s2) ; contains(s, '') ; contains(li, 2) ; contains(lt, 'é') ;
    contains(mp, 'a') ; contains(li, n)
strpos: strpos(s, 'b') ; instr(s, s2) ; position('a' in s) ; strpos(s, '') ; position(s2 in s)
regexp_matches: regexp_matches(s, '[a-c]+') ; regexp_matches(s, 'ABC', 'i') ; regexp_matches(s, s2) ;
    regexp_matches(s, '^.$') ; regexp_matches(s, 'e.b', 's') ; regexp_matches(s, '\w')
regexp_full_match: s ~ 'a.*' ; s similar to '.*c' ; regexp_full_match(s, 'ABC', 'i') ; s !~ 'a.*' ;
    s not similar to 'x+'
regexp_replace: regexp_replace(s, '[ab]', 'X') ; regexp_replace(s, '[ab]', 'X', 'g') ;
    regexp_replace(s, '(a)', '\1\1') ; regexp_replace(s, s2, 'é')
regexp_extract: regexp_extract(s, '[a-c]+') ; regexp_extract(s, '(.)-(.)', 2) ; regexp_extract(s, '(A)', 1, 'i')
split_part: split_part(s, '-', 2) ; split_part(s, '-', n) ; split_part(s, s2, 1) ; split_part(s, '', 2) ;
    split_part(s, '-', -1)
string_split: string_split(s, '-') ; str_split(s, s2) ; split(s, 'x')[1]
lpad: lpad(s, 5, 'xy') ; lpad(s, 2, 'x') ; lpad(s, -1, 'é') ; lpad(s, i8, 'ab')
rpad: rpad(s, 5, 'xy') ; rpad(s, 0, 'x') ; rpad(s, 12, 'é')
reverse: reverse(s) ; reverse(word)
repeat: repeat(s, 2) ; repeat(s, n) ; repeat(bin, 2)
ascii: ascii(s) ; ascii('')
unicode: unicode(s) ; ord(s2)
chr: chr(65) ; chr(u) ; chr(128512)
md5: md5(s) ; md5(bin)
octet_length: octet_length(bin)
abs: abs(i8) ; abs(b) ; abs(x) ; abs(f) ; abs(m) ; abs(u) ; @x ; abs(m38) ; abs(u64)
round: round(x) ; round(f) ; round(m) ; round(i8) ; round(x, 1) ; round(x, i8) ; round(m, 1) ; round(m, 5) ;
    round(m, -2) ; round(b, -1) ; round(x, -1) ; round(f, 1) ; round(u64) ; round(m38, 2) ;
    round(2.675, 2) ; round(i, 1)
floor: floor(x) ; floor(f) ; floor(m) ; floor(i) ; floor(m38)
ceil: ceil(x) ; ceiling(f) ; ceil(m) ; ceil(b) ; ceil(m38)
trunc: trunc(x) ; trunc(f) ; trunc(m) ; trunc(i) ; trunc(u64) ; trunc(m38)
sqrt: sqrt(pos) ; sqrt(u) ; sqrt(abs(m)) ; sqrt(-0e0)
cbrt: cbrt(x) ; cbrt(i)
power: power(x, 2) ; pow(x, y) ; x ^ 0.5e0 ; i ** 2 ; power(u, -1) ; power(m, 2)
ln: ln(pos) ; ln(abs(n) + 1)
log: log(pos) ; log(2, pos) ; log(pos + 2, 8)
log10: log10(pos)
log2: log2(pos)
exp: exp(x) ; exp(i8)
mod: mod(i, 3) ; mod(x, 2) ; mod(m, 2) ; mod(i, i8) ; mod(b, -1)
sign: sign(x) ; sign(i8) ; sign(m) ; sign(u) ; sign(f) ; sign(u64)
greatest: greatest(x, y) ; greatest(i, i8, 3) ; greatest(s, s2) ; greatest(d, ts) ; greatest(x, 0) ;
    greatest(x, null) ; greatest(m, 1.5) ; greatest(ok, true) ; greatest(li, li2) ;
    greatest(span, interval 1 day) ; greatest(s)
least: least(x, y) ; least(i, i8) ; least(s, s2) ; least(d, d2) ; least(x, 0) ; least(st, st) ;
    least(ts, ts2)
pi: pi() ; x * pi()
sin: sin(i)
cos: cos(i)
tan: tan(i)
asin: asin(0.5)
acos: acos(0.5)
atan: atan(x)
atan2: atan2(x, y)
degrees: degrees(x)
radians: radians(x)
isnan: isnan(x) ; isnan(f)
isinf: isinf(x) ; isinf(d)
isfinite: isfinite(x) ; isfinite(ts)
&: i & 3 ; i8 & b ; u & i ; u64 & 3 ; i & 1 = 1 ; u64 & b
|: i | 8 ; 1 | 2 << 1 ; u | 1
xor: xor(i, 3) ; xor(u, 255)
~: ~i ; ~u ; ~i & 1
<<: u::integer << 1 ; 1 << abs(n) ; abs(b) << 2
>>: i >> 1 ; b >> n ; i8 >> 100 ; u >> 1
bit_count: bit_count(i) ; bit_count(i8)
now: now() = now() ; now() - now() ; current_timestamp = now() ; get_current_timestamp() > tz ;
    transaction_timestamp() = now()
current_date: d < current_date ; today() = current_date ; d + 400000000 > current_date or d < current_date
current_localtimestamp: ts < localtimestamp ; current_localtimestamp() = localtimestamp ;
    current_localtimestamp() = now()
year: year(d) ; year(ts) ; year(tz) ; year(tzp) ; year(tsn) ; year(span) ; extract(year from d)
month: month(d) ; month(ts) ; month(tz) ; extract(month from ts) ; month(interval '14 months')
day: day(d) ; day(ts) ; dayofmonth(tz) ; extract(day from ts - ts2) ; extract('day' from d)
quarter: quarter(d) ; quarter(ts) ; extract(quarter from d)
week: week(d) ; weekofyear(ts) ; extract(week from d)
dayofweek: dayofweek(d) ; weekday(ts) ; extract(dow from d)
isodow: isodow(d) ; extract(isodow from ts)
dayofyear: dayofyear(d) ; extract(doy from ts)
isoyear: isoyear(d) ; extract(isoyear from ts)
yearweek: yearweek(d) ; yearweek(ts)
decade: decade(d)
century: century(d) ; extract(century from ts)
millennium: millennium(d)
era: era(d)
hour: hour(ts) ; hour(d) ; hour(tz) ; hour(tzp) ; hour(t) ; hour(span) ; extract(hour from ts)
minute: minute(ts) ; minute(d) ; minute(t) ; minute(tzp)
second: second(ts) ; second(d) ; second(t) ; second(tz) ; second(span)
millisecond: millisecond(ts) ; extract(ms from t)
microsecond: microsecond(ts) ; extract(microseconds from ts)
date_part: date_part('year', d) ; datepart('dow', ts) ; date_part('EPOCH', ts) ; date_part('hour', tz) ;
    date_part('mon', d) ; date_part('minute', t)
date_trunc: date_trunc('year', ts) ; date_trunc('quarter', ts) ; date_trunc('month', ts) ; date_trunc('week', ts) ;
    date_trunc('day', ts) ; date_trunc('hour', ts) ; date_trunc('minute', ts) ; date_trunc('second', ts) ;
    date_trunc('milliseconds', ts) ; date_trunc('us', ts) ; date_trunc('decade', ts) ;
    date_trunc('century', ts) ; date_trunc('millennium', ts) ; date_trunc('month', d) ;
    date_trunc('week', d) ; date_trunc('month', tz) ; datetrunc('hour', tzp) ; date_trunc('day', tsn) ;
    date_trunc('month', interval '40 days') ; date_trunc('hour', d) ; date_trunc('day', span)
date_diff: date_diff('day', d, d2) ; datediff('month', ts, ts2) ; date_diff('hour', ts, tz) ;
    date_diff('minute', t, t) ; date_diff('year', d, ts) ; date_diff('week', d, d2)
date_sub: date_sub('month', d, d2) ; datesub('day', ts, ts2)
date_add: date_add(d, interval 1 month) ; date_add(d, 1) ; date_add(ts, interval (n) day)
age: age(ts, ts2) ; age(d, d2) ; age(tz, tzp) ; age(ts) = age(current_date, ts)
strftime: strftime(d, '%Y-%m-%d') ; strftime(ts, '%d.%m.%y %H:%M:%S.%f') ; strftime('%A %j', d) ;
    strftime(tz, '%c %z') ; strftime(tsn, '%n')
strptime: strptime('29.02.2020', '%d.%m.%Y') ; strptime(strftime(d, '%Y-%m-%d'), '%Y-%m-%d') ;
    strptime('2020-01-01 +0500', '%Y-%m-%d %z')
try_strptime: try_strptime(s, '%Y-%m-%d')
epoch: epoch(d) ; epoch(ts) ; epoch(tz) ; epoch(t) ; epoch(interval '1 month') ; epoch(tsn) ;
    extract(epoch from ts)
epoch_ms: epoch_ms(ts) ; epoch_ms(d) ; epoch_ms(n) ; epoch_ms(span)
epoch_us: epoch_us(ts) ; epoch_us(t)
epoch_ns: epoch_ns(tsn) ; epoch_ns(t)
last_day: last_day(d2) ; last_day(ts)
monthname: monthname(d)
dayname: dayname(ts)
make_date: make_date(2020 + n, 2, 28)
make_timestamp: make_timestamp(2020, 2, 29, 1, 2, 3.5)
to_timestamp: to_timestamp(n) ; to_timestamp(1.5)
time_bucket: time_bucket(interval 1 day, ts2) ; time_bucket(interval '2 months', d2)
timezone: timezone('Europe/Paris', tzp) ; tsn at time zone 'Asia/Tokyo' ; tzp at time zone 'America/New_York'
to_years: to_years(n)
to_quarters: to_quarters(n)
to_months: to_months(n)
to_decades: to_decades(n)
to_centuries: to_centuries(n)
to_millennia: to_millennia(n)
to_weeks: to_weeks(n)
to_days: to_days(n)
to_hours: to_hours(n) ; to_hours(i)
to_minutes: to_minutes(n) ; to_minutes(i)
to_seconds: to_seconds(n) ; to_seconds(i)
to_milliseconds: to_milliseconds(n) ; to_milliseconds(i)
to_microseconds: to_microseconds(n) ; to_microseconds(i)
list_extract: li[1] ; li[-1] ; li[n] ; li[0] ; list_extract(lt, 2) ; fixed[1] ; s[2] ; s[-1] ; nested[1][1] ;
    list_element(li, 3) ; array_extract(lf, 1) ; ls[1] ; ls[2].k ; ls[-1]['k']
list_slice: li[1:2] ; li[:2] ; li[2:] ; li[-2:] ; li[n:] ; li[:n] ; s[1:2] ; s[n:] ; li[1:3:2] ;
    list_slice(lt, 1, 1) ; array_slice(li, 2, -1) ; li[:] ; fixed[1:1]
list_contains: list_contains(li, 2) ; array_contains(lt, 'a') ; list_has(li, n) ; array_has(lf, 'nan'::double) ;
    list_contains(lf, 0) ; 2 in li ; n in li ; s2 in lt ; list_contains(li, null) ; 2 not in li ;
    list_contains(li, 1.5) ; list_contains(ls, {'k': 1}) ; 1 in [1, null] ; 2 in [1, null]
list_position: list_position(li, n) ; list_position(li, null) ; list_position(li, 7) ; list_indexof(lt, 'a')
list_value: [1, 2] ; [n, i] ; [s, null] ; [] ; list_value(x, 1) ; [[1], [2, 3]] ; list_pack(d) ; [n, 1.5]
list_concat: li || li2 ; li || [4] ; list_concat(li, li2) ; list_cat(lt, ['z']) ; [1] || null
list_append: list_append(li, 9) ; array_append(lt, s)
list_prepend: list_prepend(9, li)
array_to_string: array_to_string(li, '-') ; array_to_string(lt, ', ')
struct_extract: st.a ; st['a'] ; st.b ; st['IN'].z ; st."in".z ; (st).a ; struct_extract(st, 'a') ; st['in']['z'] ;
    {'q': n, 'r': s}.q ; {'a': {'b': n}}.a.b
map_extract_value: mp['a'] ; mp['zz'] ; mi[2] ; mi[n] ; map_extract_value(mp, s2)
map_extract: map_extract(mp, 'a') ; element_at(mi, 1)
map_contains: map_contains(mp, 'b') ; 'a' in mp ; map_contains(mi, 2)
map_keys: map_keys(mp) ; map_keys(mi)
map_values: map_values(mp)
cardinality: cardinality(mp)
coalesce: coalesce(s, s2, '-') ; coalesce(i, b) ; coalesce(li, [1]) ;
    coalesce(st, {'a': 1, 'B': 'x', 'in': {'z': 0e0}}) ; coalesce(x, 1) ; coalesce(d, ts) ;
    coalesce(null, n)
ifnull: ifnull(n, 0) ; ifnull(s, s2)
nullif: nullif(n, 2) ; nullif(s, '') ; nullif(x, y) ; nullif(li, [7, null, 7])
if: if(ok, 1, 2) ; if(i > 1, s, s2) ; if(n, 'a', 'b')
"""

# Operators and forms that are no calls.
_FORMS = r"""
~2 + i ; ~i * 2 ; ~i & 3 ; 1 + ~2 + i ; @n + 1 ; @n & 1 ; s == s2 || '' ; i == 1 or ok ;
i == n is null ; s ~ 'a' || 'b' ;
(s ^@ 'a') and ok ; n == 1 < ok ;
d + interval 1 month ; d - interval '1 month 1 day' ; ts + interval '1 day 02:03:04.5' ;
ts - interval '1' year ; tz + interval '1 month' ; tz - interval 1 day ; tzp + interval (n) hour ;
interval 1 day + d ; tsn + interval 1 hour ; ts - ts2 ; tz - ts ; tz - tzp ; tzp - tz ; ts - d ; d - d2 ; ts + span ;
span + span ; span - interval 1 hour ; -span ; - interval '1 month' ; t + interval '25 hours' ;
t - interval 1 minute ; d + t ; interval (n) month * 2 ; interval '1 month' * 1.5 ;
interval '5 days' / 2 ; interval '1 day' / 0 ; n * interval 1 day ;
interval '1 year' + interval '2 days' ; ts + to_months(n) ; interval (m) day ;
interval (n) month = interval (n * 30) day ; ts - ts2 > interval '1 day' ;
ts - ts2 <= interval 30 day ; span = interval '1 day 01:01:01.000001' ;
interval '1 month -1 day' > interval '29 days' ; ts - ts2 in (interval '0 days', interval 1 day) ;
ts - ts2 is distinct from interval 0 day ; ts - ts2 between interval '-1 day' and interval '10 years' ;
span > '1 day' ; cast(span as varchar) ; cast(ts - ts2 as varchar) ;
cast('1 month 3 days' as interval) ; ts + '1 day' ; cast(interval '14 months' as varchar) ; li = li2 ;
li = [1, 2, 3] ; li <> li2 ; li < li2 ; li is distinct from li2 ; lf = lf ; lt = ['a', 'b'] ;
fixed = [1, 2] ; st = st ; st = {'a': 1, 'B': 'x', 'in': {'z': 1.5}} ; mp = mp ; nested = nested ;
li in ([1, 2, 3], [4]) ; st is null ; li is not null ; st.a is null ; mp['a'] is null ;
not (li = li2) ; case when ok then li else [] end ; li between [0] and [5] ; [n, null] = [1, null] ;
cast(li as varchar) ; cast(st as varchar) ; cast('[1, 2]' as integer[]) ; cast(li as double[]) ;
li::varchar[] ; cast(mp as varchar) ; cast({'a': 1} as struct(a varchar)) ; try_cast(s as integer[]) ;
try_cast(s as interval) ; try_cast(s as date) ; -2 ^ 2 ; 2 ^ 3 ^ 2 ; 1 + 2 || 'x' ; 'x' || 1 + 2 ;
not i & 1 = 1 ; i & 1 = 1 and ok ; -i8 + 2::smallint ; - i ^ 2 ; 1 - 2 - 3 ; 7 // 2 * 2 ;
i + 1 = 2 is null ; not ok = false ; s || s2 = 'abca' ; i between 1 & 3 and 4 | 8 ; s like 'a' || '%' ;
-n % 3 ; n % -3 ; 2 * n ** 2 ; st.a + li[1] ; -li[1] ; li[1]::varchar ;
"""


def _texts(block: str) -> list[str]:
    return [text.strip() for text in block.split(";") if text.strip()]


def _by_function(block: str) -> dict[str, list[str]]:
    """`name: text ; text`, continued on lines that begin with a space."""
    found: dict[str, list[str]] = {}
    for entry in re.split(r"\n(?=\S)", block.strip("\n")):
        name, _, texts = entry.partition(": ")
        found[name] = _texts(texts)
    return found


CALLS = _by_function(_CALLS)
FORMS = _texts(_FORMS)
