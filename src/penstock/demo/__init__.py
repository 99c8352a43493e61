"""All of it at work: a web site's log, from the first event to the mail that says what is wrong.

    traffic.py   what happens on the site: waves, a burst of errors, a scanner, phones that come back from a tunnel
    weblogs.py   the pipeline: an ordinary application file
    mailbox.py   a mail server that shows what it gets
    site.py      the processes: events in, views, service
    show.py      what the terminal shows meanwhile
    demo.py      the demo from beginning to end

`python -m penstock.demo`, `penstock demo` and `make demo` are the same.
"""
