"""Check: is everything whole, what lies where, and what can be mended.

`checking` goes through a log (`hot` and `sealed` segments) and gives `findings`; `inspection` shows what is there;
`repair` mends what can be mended, with what `salvage` still reads.
"""
