"""What people are told: rows of views, once per key and period, nothing lost and nothing told twice by us.

The way of an alert, and of the files:

    compiled.py   its condition, analysed on the columns of its view
    looking.py    which rows of a step it is about
    telling.py    what is written in the step's transaction: who is told what, and which keys were told
    entries.py    what was told, to whom, and how it went
    courier.py    carries it: claims entries, sends them, tries again
    mail.py       an entry as an e-mail
    chart.py      and the picture in it
    smtp.py       over a mail server
    web.py        or to a web hook
"""
