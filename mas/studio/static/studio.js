// Own JavaScript of every page: figures are drawn where an element has data-figure.
