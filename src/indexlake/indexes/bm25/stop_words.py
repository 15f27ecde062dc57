"""Lists of stop words by language: words so frequent that they say nothing about a text."""

from __future__ import annotations


def _words(listed: str) -> frozenset[str]:
    return frozenset(listed.split())


STOP_WORDS: dict[str, frozenset[str]] = {
    "english": _words(
        """
        a about above after again all am an and any are as at be because been before being below between
        both but by can did do does doing down during each few for from further had has have having he her
        here hers him his how i if in into is it its itself just me more most my no nor not now of off on
        once only or other our ours out over own same she so some such than that the their theirs them then
        there these they this those through to too under until up very was we were what when where which
        while who whom why will with you your yours
        """
    ),
    "german": _words(
        """
        aber alle als also am an auch auf aus bei bin bis bist da damit dann das dass dein dem den der des
        die dies diese dieser dieses doch dort du durch ein eine einem einen einer eines er es euer für hat
        hatte ich ihr ihre im in ist ja kann kein keine mein mit nach nicht noch nun nur ob oder ohne sehr
        sein seine sich sie sind so um und uns unser unter vom von vor war waren was weil wenn wer wie wir
        wird zu zum zur über
        """
    ),
    "french": _words(
        """
        au aux avec ce ces cette dans de des du elle elles en est et eux il ils je la le les leur leurs lui
        ma mais me mes moi mon même ne nos notre nous on ou où par pas pour qu que qui sa se ses son sont
        sur ta te tes toi ton tu un une vos votre vous à
        """
    ),
    "spanish": _words(
        """
        a al ante antes como con contra de del desde donde durante e el ella ellas ellos en entre era es esa
        ese eso esta este esto ha hay la las le les lo los me mi mis muy más no nos o para pero por que qué
        se ser si sin sobre son su sus sí también te tu tus un una uno y ya yo él
        """
    ),
}
