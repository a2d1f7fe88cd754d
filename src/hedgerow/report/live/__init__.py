"""The live page: what leaves my building, while it leaves. `hedgerow watch` serves it to this machine's own browser.

door.py                     the port: who may ask, and what is answered
live.html live.js live.css  the page, as the browser gets it; nothing is fetched from anywhere else
"""
